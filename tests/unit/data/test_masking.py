"""Hidden words and next sentences: in the promised shares, fresh each epoch, and the same wherever we resume."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.loader import Loader, in_order
from regard.data.masked import SentenceIds, inside_ids, special_ids
from regard.data.masking import ALONE, ELSE, FOLLOWS, MaskedBatch, MaskedRows, Rules, draw_rows, hide, widths
from regard.data.tokenizers.wordpiece import WordPiece
from regard.errors import CheckpointError, ConfigError

PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB = 200  # ids 5 to 149 open a word, 150 to 199 go on within one


def make_rules(length: int = 32, **settings) -> Rules:
    special, inside = np.arange(VOCAB) < 5, np.arange(VOCAB) >= 150
    return Rules(length, special, inside, PAD, CLS, SEP, MASK, **settings)


def corpus(documents: int = 40, seed: int = 0, most: int = 12) -> SentenceIds:
    """Documents of one to eight sentences of up to `most` ids, some of them [UNK]."""
    random = np.random.default_rng(seed)

    def sentence() -> list[int]:
        ids = random.integers(5, VOCAB, random.integers(1, most + 1))
        return np.where(random.random(len(ids)) < 0.05, UNK, ids).tolist()

    return SentenceIds.of([[sentence() for _ in range(random.integers(1, 9))] for _ in range(documents)])


def loader_of(text: SentenceIds, rules: Rules, tokens: int, seed: int, packed: bool = False, **more) -> Loader:
    rows = MaskedRows(text, rules, tokens, packed)
    return Loader(rows, rows.plan, seed, **more)


def epoch(rows: Loader) -> list[MaskedBatch]:
    return list(islice(rows, rows.batches_per_epoch))


def original(batch: MaskedBatch) -> np.ndarray:
    """The ids as they were before words were hidden."""
    return np.where(batch.host_targets >= 0, batch.host_targets, batch.ids.numpy())


def near(share: float, of: float, trials: int) -> bool:
    """Within four and a half standard deviations: wrong once in 150,000 times, and the seed is fixed."""
    return abs(share - of) < 4.5 * (of * (1 - of) / trials) ** 0.5


# Hiding


@pytest.mark.parametrize("whole_words", [False, True], ids=["pieces", "whole words"])
def test_fifteen_per_cent_are_chosen_and_share_80_10_10(whole_words):
    ids = np.random.default_rng(1).integers(5, VOCAB, (600, 100))
    ids[:, 0], ids[:, 40], ids[:, 80:] = CLS, SEP, PAD
    shown, targets = hide(ids, make_rules(100, whole_words=whole_words), seed=3, epoch=0)
    chosen, words = targets >= 0, ids >= 5
    assert not (chosen & ~words).any() and (targets[chosen] == ids[chosen]).all()
    n = int(chosen.sum())
    assert abs(n / words.sum() - 0.15) < 0.0015
    masked, kept = shown[chosen] == MASK, shown[chosen] == ids[chosen]
    assert near(masked.mean(), 0.8, n)
    assert near(kept.mean(), 0.1 + 0.1 / (VOCAB - 5), n)
    replaced = shown[chosen][~masked & ~kept]
    assert replaced.min() >= 5 and len(np.unique(replaced)) > 0.9 * VOCAB, "any word, and no special token"
    assert (shown[~chosen] == ids[~chosen]).all()
    by_place = chosen[:, 1:40].mean(0)
    assert all(near(share, 0.15, len(ids)) for share in by_place), "every place is as likely as every other"


def test_each_row_has_its_share_and_at_least_one_word():
    ids = np.full((4, 42), PAD)
    for row, n in enumerate((1, 3, 10, 40)):
        ids[row, 0], ids[row, 1 : n + 1], ids[row, n + 1] = CLS, 7, SEP
    _, targets = hide(ids, make_rules(42), seed=0, epoch=0)
    counts = (targets >= 0).sum(1).tolist()
    assert counts[:2] == [1, 1] and counts[2] in (1, 2) and counts[3] == 6
    nothing = np.array([[CLS, UNK, SEP, PAD]])
    shown, targets = hide(nothing, make_rules(), seed=0, epoch=0)
    assert (shown == nothing).all() and (targets < 0).all()


def test_whole_words_are_hidden_with_all_their_pieces():
    ids = np.tile([CLS, 10, 150, 151, 11, UNK, 152, 12, 153, 13, SEP], (300, 1))
    words = [(1, 2, 3), (4,), (6,), (7, 8), (9,)]  # after [UNK] a piece is on its own
    _, targets = hide(ids, make_rules(whole_words=True, masked=0.3), seed=0, epoch=0)
    seen = Counter()
    for row in targets >= 0:
        for word in words:
            assert len({bool(row[place]) for place in word}) == 1
            seen[word] += bool(row[word[0]])
    assert all(seen[word] > 30 for word in words)


def test_hiding_is_fresh_each_epoch_and_depends_on_the_row_alone():
    ids = np.random.default_rng(1).integers(5, VOCAB, (20, 30))
    rows = np.arange(100, 120)
    once, again = (hide(ids, make_rules(), seed=5, epoch=2, rows=rows) for _ in range(2))
    assert all((a == b).all() for a, b in zip(once, again, strict=True))
    one = hide(ids[7:8], make_rules(), seed=5, epoch=2, rows=rows[7:8])
    assert (one[0] == once[0][7]).all() and (one[1] == once[1][7]).all()
    for other in ({"seed": 6, "epoch": 2}, {"seed": 5, "epoch": 3}):
        assert (hide(ids, make_rules(), rows=rows, **other)[1] != once[1]).any(1).mean() > 0.9


def test_the_kitten_of_the_lecture():
    text = "The curious kitten deftly climbed the bookshelf"
    tokenizer = WordPiece.train([text] * 5, 100)
    rules = Rules(
        32, special_ids(tokenizer), inside_ids(tokenizer), tokenizer.pad, tokenizer.cls, tokenizer.sep, tokenizer.mask
    )
    ids = np.array([tokenizer.encode(text).ids])
    assert ids.shape == (1, 9), "seven words, [CLS] and [SEP]"
    seen, hidden = Counter(), Counter()
    for number in range(2000):
        shown, targets = hide(ids, rules, seed=0, epoch=number)
        hidden.update(tokenizer.piece(int(i)) for i in targets[0] if i >= 0)
        seen[" ".join(tokenizer.piece(i) for i in shown[0, 1:-1].tolist())] += 1
    assert near(hidden.total() / 14_000, 0.15, 14_000), "of seven words one, now and then two"
    assert hidden.keys() == set(text.lower().split())
    assert all(near(n / hidden.total(), (2 if w == "the" else 1) / 7, hidden.total()) for w, n in hidden.items())
    assert "the curious [MASK] deftly climbed the bookshelf" in seen
    assert near(seen[text.lower()] / 2000, 0.1, 2000), "a tenth stays as it is"


# Next sentences


@pytest.mark.parametrize("negatives", ["random", "swapped"])
def test_half_of_the_pairs_follow(negatives):
    text = corpus(1500)
    labels = np.concatenate([draw_rows(text, make_rules(negatives=negatives), 0, e)[:, 4] for e in range(2)])
    pairs = labels != ALONE
    assert pairs.sum() > 2000 and near((labels[pairs] == FOLLOWS).mean(), 0.5, int(pairs.sum()))


def test_the_numbers_of_the_labels_are_theirs():
    """As in transformers' BertForPreTraining: 0 is a continuation, 1 a random sequence."""
    assert (FOLLOWS, ELSE) == (0, 1)


def test_a_pair_is_what_its_label_says():
    text = corpus(300)
    starts, ends = text.sentences[:-1].tolist(), text.sentences[1:].tolist()
    document = np.repeat(np.arange(len(text)), np.diff(text.documents))  # of each sentence
    opens = set(text.sentences[text.documents[:-1]].tolist())
    for a, m, b, z, label in draw_rows(text, make_rules(), 1, 0).tolist():
        assert a in starts and m in ends and a < m
        if label == ALONE:
            continue
        assert b in starts and b < z and b not in opens
        of_a, of_b = document[starts.index(a)], document[starts.index(b)]
        assert (b == m and of_a == of_b and z in ends) if label == FOLLOWS else of_a != of_b


def test_the_toast_pair_swapped():
    """Both from the same place and on the same matter: only their order tells that one does not follow the other."""
    said = ["She put the bread into the toaster.", "A minute later the toast was ready."]
    tokenizer = WordPiece.train(said * 5, 150)
    a, b = (tokenizer.encode(s).ids[1:-1] for s in said)
    text = SentenceIds.of([[a, b]])
    settings = (tokenizer.pad, tokenizer.cls, tokenizer.sep, tokenizer.mask)
    rules = Rules(64, special_ids(tokenizer), inside_ids(tokenizer), *settings, negatives="swapped")
    seen = {}
    for seed in range(20):
        (batch,) = epoch(loader_of(text, rules, 64, seed))
        assert batch.follows is not None
        seen[int(batch.follows)] = tokenizer.decode(original(batch)[0].tolist())
        opens = 1 + batch.ids[0].tolist().index(tokenizer.sep)
        assert batch.sentences[0].tolist() == [0] * opens + [1] * (batch.ids.size(1) - opens)
    first, second = (s.lower().replace(".", " .") for s in said)
    assert seen == {FOLLOWS: f"{first} {second}".replace(" .", "."), ELSE: f"{second} {first}".replace(" .", ".")}
    assert (draw_rows(text, make_rules(64), 0, 0) == draw_rows(text, rules, 0, 0)).all(), "there is no other document"


def test_without_next_sentence_rows_are_full_stretches_of_one_text():
    text, rules = corpus(), make_rules(next_sentence=False)
    batches = epoch(loader_of(text, rules, 256, 0))
    assert all(b.follows is None and b.weight == 0 and not b.sentences.any() for b in batches)
    read = [i for b in batches for row, n in zip(original(b), b.lengths.tolist(), strict=True) for i in row[1 : n - 1]]
    assert Counter(read) == Counter(text.ids.read(0, len(text.ids)).tolist()), "every token once"


# Batches


@settings(max_examples=25)
@given(
    documents=st.integers(4, 60), length=st.integers(28, 50), factor=st.integers(1, 9),
    seed=st.integers(0, 5), negatives=st.sampled_from(["random", "swapped"]),
)  # fmt: skip
def test_epoch_reads_every_sentence_in_tight_batches(documents, length, factor, seed, negatives):
    text, rules = corpus(documents + 20, seed), make_rules(length, negatives=negatives)
    batches = epoch(loader_of(text, rules, factor * length, seed))
    numbers = [int(n) for b in batches for n in b.rows]
    assert sorted(numbers) == list(range(len(numbers)))
    rows = draw_rows(text, rules, seed, 0)
    assert widths(rows).max() <= length
    read = {p for a, m, b, z, label in rows.tolist() for lo, hi in [(a, m), (b, z)] for p in range(lo, hi)}
    assert read == set(range(len(text.ids)))
    for b in batches:
        assert b.ids.size(1) == int(b.lengths.max()) and b.count == len(b.chosen) == len(b.targets)
        for row, n in zip(original(b), b.lengths.tolist(), strict=True):
            assert row[0] == CLS and row[n - 1] == SEP and (row[n:] == PAD).all() and (row[1:n] != PAD).all()
        assert torch.equal(b.targets, torch.from_numpy(b.host_targets).flatten()[b.chosen])
        assert not np.isin(b.targets.numpy(), range(5)).any()


@pytest.mark.parametrize("whole_words", [False, True])
def test_packed_batches_have_one_shape_and_the_same_examples(whole_words):
    text, rules = corpus(300), make_rules(whole_words=whole_words)
    rows = loader_of(text, rules, 256, 0, packed=True)
    batches = epoch(rows)
    names = ("ids", "sentences", "starts", "chosen", "targets", "follows")
    assert len({tuple(getattr(b, name).shape for name in names) for b in batches}) == 1
    assert batches[0].ids.shape == (1, 256) and batches[0].lengths is None
    plain = {}
    for b in epoch(loader_of(text, rules, 256, 0)):
        for n, *row in zip(b.rows, b.ids, b.sentences, torch.from_numpy(b.host_targets), b.follows, strict=True):
            plain[int(n)] = row
    met = []
    for b in batches:
        starts = b.starts.tolist()
        assert b.starts.dtype == torch.int32 and starts[0] == 0 and starts[-1] == 256 and starts == sorted(starts)
        assert b.starts.diff().max() <= rules.length, "padding too is cut into rows"
        for i, n in enumerate(b.rows.tolist()):
            here = slice(starts[i], starts[i + 1])
            if n < 0:
                assert b.host_lengths[i] == 0 and b.follows[i] == ALONE
                assert not b.ids[0, here].any() and (b.host_targets[0, here] < 0).all()
                continue
            met.append(n)
            size = int(b.host_lengths[i])
            assert starts[i + 1] - starts[i] == size
            ids, second, hidden, follows = plain[n]
            assert torch.equal(b.ids[0, here], ids[:size]) and torch.equal(b.sentences[0, here], second[:size])
            assert b.host_targets[0, here].tolist() == hidden[:size].tolist() and b.follows[i] == follows
        assert b.count == int((b.targets >= 0).sum()) == int((b.host_targets >= 0).sum())
        flat = torch.from_numpy(b.host_targets).flatten()
        assert torch.equal(flat[b.chosen[: b.count]], b.targets[: b.count]) and (b.targets[b.count :] < 0).all()
    assert sorted(met) == sorted(plain)
    assert 0 < rows.padding < 0.1 < loader_of(text, rules, 256, 0).padding + 0.1
    assert sum(b.tokens for b in batches) == sum(int(b.host_lengths.sum()) for b in batches) < 256 * len(batches)


def test_a_packed_batch_asks_for_no_more_than_it_has_room_for():
    """Of texts of one word each one word is hidden, far more than the share there is room for."""
    text, rules = SentenceIds.of([[[7]] for _ in range(400)]), make_rules(8, next_sentence=False, masked=0.05)
    full = next(loader_of(text, rules, 512, 0, packed=True))
    assert len(full) == 170 and full.count == len(full.targets) < 100
    assert full.count == int((full.targets >= 0).sum()) == int((full.host_targets >= 0).sum())
    few = next(loader_of(text, make_rules(next_sentence=False), 64, 0, packed=True))
    assert len(few) == 6, "8 rows, four times 64 / 32, two of them left for padding"


def test_rows_differ_from_epoch_to_epoch_and_not_from_run_to_run():
    def text(seed: int) -> list[list[list[int]]]:
        rows = loader_of(corpus(), make_rules(), 128, seed)
        return [[batch.ids.tolist() for batch in epoch(rows)] for _ in range(2)]

    assert text(1) == text(1)
    assert text(1)[0] != text(1)[1] and text(1)[0] != text(2)[0]


@pytest.mark.parametrize("packed", [False, True])
def test_resuming_gives_the_batches_that_would_have_come(packed):
    def make(**settings) -> Loader:
        return loader_of(corpus(), make_rules(**settings), 128, 3, packed=packed, content=9)

    rows = make()
    for steps in (0, 3, rows.batches_per_epoch, 2):
        for _ in range(steps):
            next(rows)
        other = make()
        other.restore(rows.state())
        mine = make()
        mine.restore(rows.state())
        for _ in range(5):
            a, b = next(other), next(mine)
            assert torch.equal(a.ids, b.ids) and torch.equal(a.targets, b.targets)
        assert torch.equal(next(rows).ids, _after(make(), rows.state()).ids)
    with pytest.raises(CheckpointError, match="swapped=0, this run has swapped=1"):
        make(negatives="swapped").restore(rows.state())


def _after(rows: Loader, state: dict[str, int]) -> MaskedBatch:
    """The batch that came just before `state`."""
    rows.restore(state | {"position": state["position"] - 1})
    return next(rows)


def test_validation_is_always_the_same_and_sorted():
    source = MaskedRows(corpus(), make_rules(), 128)
    first, second = (list(in_order(source, source.plan)) for _ in range(2))
    assert all(torch.equal(a.ids, b.ids) for a, b in zip(first, second, strict=True))
    lengths = [n for b in first for n in b.lengths.tolist()]
    assert lengths == sorted(lengths) and sorted(n for b in first for n in b.rows) == list(range(len(lengths)))


def test_halves_hold_what_the_whole_held():
    batch = next(loader_of(corpus(), make_rules(), 512, 0))
    left, right = batch.split()
    assert left.tokens + right.tokens == batch.tokens == int(batch.lengths.sum())
    assert left.count + right.count == batch.count and left.weight == right.weight == batch.weight
    assert torch.equal(torch.cat([left.targets, right.targets]), batch.targets)
    assert torch.equal(torch.cat([left.chosen, right.chosen + left.ids.numel()]), batch.chosen)
    (alone,) = left.part(slice(0, 1)).split()
    assert len(alone) == 1


def test_a_batch_smaller_than_a_row_is_refused():
    with pytest.raises(ConfigError, match="less than one row of 32"):
        loader_of(corpus(), make_rules(), 16, 0)
