"""Whisper's vocabulary: GPT-2's tokens in OpenAI's file format, followed by the control tokens."""

import base64
import binascii
from itertools import pairwise

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from regard.data.tokenizers.pretrained import CHARACTER_OF, Pretrained
from regard.errors import DataError

END, START, NO_TIMES, PREVIOUS = "<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>", "<|startofprev|>"
TASKS = ("<|translate|>", "<|transcribe|>", "<|startoflm|>", PREVIOUS, "<|nospeech|>", NO_TIMES)
TIMES = [f"<|{n / 50:.2f}|>" for n in range(1501)]  # of a window of 30 seconds
CODES = (  # by the amount of training data
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml "
    "cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am "
    "yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue"  # codespell:ignore
)
LANGUAGES = CODES.split()
UNSPOKEN = set('"#()*+/:;<=>@[\\]^_`{|}~♩♪♫♬♭♮♯')  # signs that are never spoken
HALF_NOTES = {blank + "♪".encode()[:2] for blank in (b"", b" ")}


def whisper_tokenizer(vocabulary: bytes, size: int) -> Pretrained:
    """The tokenizer of a model with `size` tokens, from a file with a token in base 64 and its rank on each line."""
    try:
        pairs = [line.split() for line in vocabulary.splitlines()]
        ranks = {base64.b64decode(piece, validate=True): int(rank) for piece, rank in pairs}
    except (ValueError, binascii.Error) as e:
        raise DataError(f"not a vocabulary in tiktoken's format ({e})") from None
    tokenizer = Tokenizer(models.BPE({visible(piece): rank for piece, rank in ranks.items()}, merges(ranks)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    languages = [f"<|{code}|>" for code in LANGUAGES[: size - len(ranks) - len((END, START, *TASKS, *TIMES))]]
    signs = [END, START, *languages, *TASKS, *TIMES]
    if len(ranks) + len(signs) != size:
        raise DataError(f"a vocabulary of {len(ranks):,} and {len(signs):,} control tokens for a model of {size:,}")
    tokenizer.add_special_tokens([AddedToken(sign, special=True, normalized=False) for sign in signs])
    config = {"tokenizer_class": "WhisperTokenizer", "bos_token": END, "eos_token": END, "pad_token": END}
    return Pretrained(tokenizer, config | {"unk_token": END})


def visible(piece: bytes) -> str:
    return "".join(CHARACTER_OF[b] for b in piece)


def merges(ranks: dict[bytes, int]) -> list[tuple[str, str]]:
    """The two tokens that merge into each longer one: those left when only earlier merges are applied."""
    pairs = []
    for piece, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(piece) == 1:
            continue
        parts = [piece[i : i + 1] for i in range(len(piece))]
        while len(parts) > 2:
            joined = [ranks.get(left + right, rank) for left, right in pairwise(parts)]
            if (least := min(joined)) == rank:
                raise DataError(f"not a byte-level vocabulary: {piece!r} is not a merge of two earlier tokens")
            at = joined.index(least)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        pairs.append((visible(parts[0]), visible(parts[1])))
    return pairs


def unspoken(tokenizer: Pretrained) -> list[int]:
    """Ids that no transcript should contain: unspoken signs, half a note, and control tokens. A dash or an apostrophe
    without a space before it may be inside a word."""
    ids = []
    for id in range(tokenizer.tokenizer.get_vocab_size(with_added_tokens=False)):
        piece = tokenizer.token_bytes(id)
        text = piece.decode("utf-8", "replace")
        signs = set(text.removeprefix(" "))
        if (signs and signs <= UNSPOKEN | {"-", "'"} and text not in ("-", "'")) or piece in HALF_NOTES:
            ids.append(id)
    return [*ids, *(id for sign in (START, *TASKS[:-1]) if (id := tokenizer.tokenizer.token_to_id(sign)) is not None)]
