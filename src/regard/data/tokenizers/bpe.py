"""Byte-pair encoding (Sennrich et al. 2016) with byte fallback, and BPE-dropout (Provilkov et al. 2020).

The vocabulary is laid out as Marian's: `</s>` first, `<unk>` second, then 256 bytes, characters and merges, `<pad>`
last. A space is written `▁` and every text starts with one, so a token that starts with `▁` starts a word.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.data.files import in_groups
from regard.data.tokenizers.opened import OURS, guarded, open_tokenizer, with_path, write_files
from regard.errors import CheckpointError, ConfigError, DataError

SPACE = "▁"
EOS, UNK, PAD = "</s>", "<unk>", "<pad>"
BYTES = [f"<0x{b:02X}>" for b in range(256)]
SMALLEST = len(BYTES) + 64
COMMON = 0.9999  # share of the running text whose characters get their own token; the rest becomes bytes

# Where no merge may cross. "text": words, numbers and punctuation separate, but an apostrophe stays with the letters
# before it and a hyphen with those after it (l'|homme, est|-ce, don'|t). "spaces": text that is already tokenised.
SPLITS = dict(zip(("text", "spaces"), OURS, strict=True))


class BPE:
    """Subwords learned from text.

    `decode(encode(text)) == text` for every line of text, except that a literal `▁` comes back as a space.
    """

    eos = 0
    unk = 1

    def __init__(self, tokenizer: Tokenizer):
        tokenizer.encode_special_tokens = True  # "</s>" typed by a user is four characters, not the end of a sentence
        self.tokenizer = tokenizer
        self.size = tokenizer.get_vocab_size()
        self.pad = self.size - 1
        self.pieces = [tokenizer.id_to_token(i) or "" for i in range(self.size)]
        self.starts = np.array([piece.startswith(SPACE) for piece in self.pieces])  # V: does the token start a word?
        if [*self.pieces[:2], *self.pieces[2:][-1:]] != [EOS, UNK, PAD]:
            raise CheckpointError(f"expected a tokenizer with {EOS} first, {UNK} second and {PAD} last")

    @classmethod
    def train(cls, lines: Iterable[str], size: int, split: str = "text") -> "BPE":
        """Learn a vocabulary of `size`, deterministically. `lines` is read twice: give a list, not a generator."""
        if split not in SPLITS:
            raise ConfigError(f"unknown split {split!r}; expected 'text', or 'spaces' for text already tokenised")
        if size < SMALLEST:
            raise ConfigError(f"a vocabulary of {size} is too small; expected at least {SMALLEST} (256 are bytes)")
        characters = _common_characters(lines, most=(size - len(BYTES)) // 2)
        if not characters:
            raise DataError("no text to learn a vocabulary from")
        learner = Tokenizer(models.BPE())
        _add_splitting(learner, split)
        room = size - len(BYTES) - 3
        trainer = trainers.BpeTrainer(vocab_size=room, show_progress=False, initial_alphabet=characters,
                                      limit_alphabet=len(characters))  # fmt: skip
        learner.train_from_iterator(lines, trainer)
        learned = json.loads(learner.to_str())["model"]
        return cls(_assemble(learned["vocab"], learned["merges"], split))

    @classmethod
    def load(cls, folder: Path) -> "BPE":
        """The tokenizer of a model folder or prepared folder."""
        return with_path(path := Path(folder) / "tokenizer.json", cls, open_tokenizer(path))

    def save(self, folder: Path, max_length: int = 512) -> None:
        """Write tokenizer.json and tokenizer_config.json, as `transformers.AutoTokenizer` reads them."""
        tokens = {"eos_token": EOS, "unk_token": UNK, "pad_token": PAD, "model_max_length": max_length}
        # like ours: special tokens in a text are plain text
        write_files(folder, self.tokenizer, tokens | {"split_special_tokens": True})

    @guarded
    def encode(self, text: str) -> list[int]:
        """The ids of `text`, without `</s>`."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    @guarded
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts, on all cores."""
        return [e.ids for e in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    encode_targets = encode_batch  # one vocabulary for both sides

    @guarded
    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; special tokens are left out."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def piece(self, id: int) -> str:
        """The token with this id, with `▁` for a space."""
        return self.pieces[id]

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        """Positions in `ids` grouped into words: a word starts at a token that starts with `▁`; `</s>` is in none."""
        return group_words(ids, self.starts, {self.eos, self.pad})


def group_words(ids: Sequence[int], starts: np.ndarray, special: set[int]) -> list[list[int]]:
    """The positions of `ids` by word; `starts`, V, marks the tokens that start one."""
    groups: list[list[int]] = []
    for place, id in enumerate(ids):
        if id not in special:
            if starts[id] or not groups:
                groups.append([])
            groups[-1].append(place)
    return groups


def _common_characters(lines: Iterable[str], most: int) -> list[str]:
    """The characters that make up `COMMON` of the text, most frequent first, ties by code point."""
    counts = np.zeros(0x110000, np.int64)  # of each code point
    for block in in_groups(lines, 10_000):
        counts += np.bincount(np.frombuffer("".join(block).encode("utf-32-le"), "<u4"), minlength=len(counts))
    if not counts.any():
        return []
    counts[ord(SPACE)] += counts[ord(" ")] + 1  # every space is written ▁, and every line starts with one
    counts[ord(" ")] = 0
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    enough = int(np.searchsorted(np.cumsum(counts[order]), COMMON * counts.sum())) + 1
    frequent = int(np.count_nonzero(counts[order] >= 20))  # rare in a large corpus, but frequent enough to learn
    keep = min(most, max(enough, frequent))
    return [chr(c) for c in order[:keep]]


def _add_splitting(tokenizer: Tokenizer, split: str) -> None:
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(SPLITS[split]), behavior="isolated")


def _assemble(vocab: dict[str, int], merges: list[list[str]], split: str) -> Tokenizer:
    """The final tokenizer: learned characters and merges between the special tokens and bytes."""
    reserved = {EOS, UNK, PAD, *BYTES}
    merged = {left + right for left, right in merges}
    kept = {piece for piece in vocab if piece not in merged}  # the characters
    possible = []
    for left, right in merges:  # text about tokenizers may contain "<pad>" often enough to learn it: skip that
        if left in kept and right in kept and left + right not in reserved:
            possible.append((left, right))
            kept.add(left + right)
    pieces = [EOS, UNK, *BYTES, *sorted(kept, key=vocab.__getitem__), PAD]
    ids = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=possible, unk_token=UNK, byte_fallback=True))
    _add_splitting(tokenizer, split)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (EOS, UNK, PAD)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, ids[EOS])]
    )
    return tokenizer


class BPEDropout:
    """BPE-dropout (Provilkov et al. 2020, algorithm 1): each possible merge is left out with probability `p`.

    Works on encoded sentences, word by word. Each word has `POOL` segmentations, computed on demand and cached; which
    one a word gets is a pure function of (seed, epoch, sentence, side, position), so a resumed run sees the same text.
    The library's own dropout has no seed.
    """

    POOL = 32
    REMEMBER = 2_000_000  # cached segmentations, some 200 MB; dropped ones are recomputed identically
    RING = 1 << 16

    def __init__(self, bpe: BPE, p: float, seed: int = 0, max_length: int = 256):
        if not 0 <= p < 1:
            raise ConfigError(f"bpe_dropout must be a probability below 1, got {p}")
        model = json.loads(bpe.tokenizer.to_str())["model"]
        self.bpe, self.p, self.seed, self.max_length = bpe, p, seed, max_length
        self.ids: dict[str, int] = model["vocab"]
        self.ranks = {(left, right): rank for rank, (left, right) in enumerate(model["merges"])}
        # A ring of coin tosses, entered at an offset given by word and variant: faster than seeding a generator.
        self.kept: list[bool] = (np.random.default_rng(seed).random(self.RING) >= p).tolist()
        self.memory: dict[bytes, list[bytes]] = {}  # uint32 ids of a word -> its segmentations, empty if not computed
        self.remembered = 0

    def __call__(self, sentences: Sequence[np.ndarray], rows: np.ndarray, epoch: int, side: int) -> list[np.ndarray]:
        """Segment each sentence anew. `rows` are indices in the corpus; `side` is 0 for sources, 1 for targets."""
        if self.p == 0 or not any(map(len, sentences)):
            return list(sentences)
        lengths = np.array([len(s) for s in sentences])
        begins = np.cumsum(lengths) - lengths
        ids = np.concatenate(sentences).astype(np.uint32)
        opens = self.bpe.starts[ids]
        opens[begins[lengths > 0]] = True  # a sentence starts a word whatever its first token
        starts = np.flatnonzero(opens)
        owner = np.repeat(np.arange(len(sentences)), lengths)[starts]
        variants = self._choose(np.asarray(rows)[owner], starts - begins[owner], epoch, side)

        buffer, cuts, memory = ids.tobytes(), [*(4 * starts).tolist(), 4 * len(ids)], self.memory
        parts: list[bytes] = []
        for (start, end), variant in zip(pairwise(cuts), variants.tolist(), strict=True):
            word = buffer[start:end]
            pool = memory.get(word) or memory.setdefault(word, [b""] * self.POOL)
            if not pool[variant]:
                pool[variant] = self._cut(word, variant)
                self.remembered += 1
            parts.append(pool[variant])
        if self.remembered > self.REMEMBER:
            memory.clear()
            self.remembered = 0

        sizes = np.bincount(owner, [len(part) // 4 for part in parts], len(sentences)).astype(int)
        new = np.split(np.frombuffer(b"".join(parts), np.uint32), np.cumsum(sizes)[:-1])
        limit = self.max_length - 1  # without the end token
        return [b if len(b) <= limit else a for a, b in zip(sentences, new, strict=True)]

    def _choose(self, rows: np.ndarray, places: np.ndarray, epoch: int, side: int) -> np.ndarray:
        """An index below `POOL` for each word: splitmix64 of everything it depends on."""
        x = np.zeros(len(rows), np.uint64)
        for part in (self.seed, epoch, side, rows, places):
            x = splitmix64(x ^ splitmix64(np.atleast_1d(part).astype(np.uint64)))
        return (x >> np.uint64(32)) % np.uint64(self.POOL)

    def _cut(self, word: bytes, variant: int) -> bytes:
        """Segmentation number `variant` of a word given as the bytes of its uint32 ids."""
        toss = zlib.crc32(word, variant * 0x9E3779B1 & 0xFFFFFFFF)
        out: list[int] = []
        run = ""
        for id in [*np.frombuffer(word, np.uint32).tolist(), self.bpe.eos]:
            if id > self.bpe.unk + len(BYTES) and id != self.bpe.pad:
                run += self.bpe.pieces[id]
                continue
            if run:  # bytes stay, and no merge crosses them
                for part, _ in self.bpe.tokenizer.pre_tokenizer.pre_tokenize_str(run):
                    pieces, toss = self._merge(part, toss)
                    out += [self.ids[piece] for piece in pieces]
            run = ""
            out.append(id)
        return np.array(out[:-1], np.uint32).tobytes()

    def _merge(self, part: str, toss: int) -> tuple[list[str], int]:
        """The tokens of a part that merges may not cross, and the offset in the ring after all tosses."""
        pieces, ranks, kept, last = list(part), self.ranks, self.kept, self.RING - 1
        while len(pieces) > 1:
            best = None
            for place, pair in enumerate(pairwise(pieces)):
                if (rank := ranks.get(pair)) is not None:
                    toss += 1
                    if kept[toss & last] and (best is None or rank < best[0]):
                        best = rank, place
            if best is None:
                break
            place = best[1]
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return pieces, toss


def splitmix64(x: np.ndarray) -> np.ndarray:
    """A hash of 64-bit numbers: the output function of SplitMix64 (Steele et al. 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
