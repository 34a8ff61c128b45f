"""Threads that share the work give the answers of one, in order, and leave the process as it was."""

import threading

import pytest
import torch

from regard.predictors.workers import even, side_by_side, workers


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield 4
    torch.set_num_threads(before)


def test_answers_are_in_order_and_each_worker_has_its_share(threads):
    together = threading.Barrier(2)

    def work(job: int) -> tuple[int, int, str]:
        if job < 2:
            together.wait(10)  # both workers are at work
        return job, torch.get_num_threads(), threading.current_thread().name

    answers = list(side_by_side(work, iter(range(9)), 2))
    assert [job for job, _, _ in answers] == list(range(9))
    assert {share for _, share, _ in answers} == {2}
    assert len({name for _, _, name in answers}) == 2


def test_the_threads_of_the_process_are_as_before(threads):
    list(side_by_side(lambda job: job, range(3), 2))
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert torch.get_num_threads() == threads and later == [threads]


def test_a_thread_that_starts_meanwhile_has_all_cores(threads):
    """A thread keeps the number that it finds, so that it would have a share of the cores for good."""
    found = []
    answers = side_by_side(lambda job: job, range(3), 2)
    next(answers)  # the workers have begun
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert list(answers) == [1, 2] and found == [threads]


def test_one_worker_is_this_thread(threads):
    (name,) = side_by_side(lambda job: threading.current_thread().name, [1], 1)
    assert name == threading.current_thread().name


def test_an_error_of_a_worker_is_raised(threads):
    def work(job: int) -> int:
        raise ValueError(f"job {job}")

    with pytest.raises(ValueError, match="job 0"):
        list(side_by_side(work, range(5), 2))


def test_few_texts_or_one_core_are_not_shared(threads):
    assert workers(63) == 1 and workers(64) == 2
    torch.set_num_threads(1)
    assert workers(1000) == 1


@pytest.mark.parametrize(
    ("texts", "batch", "count", "size"),
    [(1000, 256, 2, 250), (1000, 128, 1, 125), (129, 128, 2, 65), (10, 128, 1, 10), (0, 128, 2, 1), (5, 1, 2, 1)],
)
def test_batches_are_even(texts, batch, count, size):
    assert even(texts, batch, count) == size <= batch
