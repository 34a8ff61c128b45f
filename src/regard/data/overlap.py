"""How many test examples a model was trained on, which inflate its score."""

from collections.abc import Hashable, Iterable, Iterator, Sequence

from regard.data.documents import Flow
from regard.data.pairs import clean
from regard.data.sentences import sentences

SHORT = 25  # characters; a shorter passage may repeat by coincidence
LONG = 300  # characters; a longer line is compared sentence by sentence


def count(scored: Sequence[Hashable], trained: Iterable[Hashable]) -> int:
    """How many of `scored` are in `trained`, which is read once and only as far as needed. "" matches nothing."""
    distinct, shared = {content for content in scored if content}, set()
    for content in trained:
        if content in distinct:
            shared.add(content)
            if len(shared) == len(distinct):
                break
    return sum(content in shared for content in scored)


def validation_warning(shared: int, total: int, what: str) -> list[str]:
    """The warning before training, if any."""
    if not shared:
        return []
    return [
        f"warning: {shared:,} of {total:,} validation {what} are in the training data too; the score will be inflated"
    ]


def evaluation_warning(shared: int | None, total: int, what: str) -> str:
    """The warning with a score, if any; `shared` is None if the training data is missing."""
    if shared is None:
        return f"cannot check whether these {what} were in the training data: its files are missing"
    warning = f"warning: {shared:,} of these {total:,} {what} were in the training data; the score is inflated"
    return warning if shared else ""


def passages(flow: Flow) -> Iterator[str]:
    """Running text as passages to compare: lines, or the sentences of long lines, without short ones."""
    for line in map(clean, _lines(flow)):
        yield from (p for p in (sentences(line) if len(line) > LONG else [line]) if len(p) >= SHORT)


def _lines(flow: Flow) -> Iterator[str]:
    held: list[str] = []  # the last line so far
    for block in flow:
        first, *rest = ("", "") if block is None else block.split("\n")  # a document ends its last line
        held.append(first)
        if rest:
            yield "".join(held)
            yield from rest[:-1]
            held = [rest[-1]]
    yield "".join(held)
