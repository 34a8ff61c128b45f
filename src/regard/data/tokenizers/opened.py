"""tokenizer.json, opened safely, since it may come from anywhere.

The library trusts its files: a regular expression that never ends, a normaliser that doubles a text forty times or a
number out of range can hang, exhaust memory, panic or kill the process. Files that consist of harmless parts are opened
directly; any other is first tried in a child process.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tokenizers import Tokenizer

from regard.config import no_run
from regard.confine import MEMORY, Confined
from regard.errors import CheckpointError, DataError, RegardError
from regard.jsonfile import read_json, write_json

LLAMA3 = (  # where merges may not cross, in several model families
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
OURS = (  # of `bpe.SPLITS`
    r"[▁-]?\p{L}[\p{L}\p{M}]*(?:['’](?=\p{L}))?|▁?\p{N}+|▁?[^\p{L}\p{N}▁]+|▁",
    r"▁?[^▁]+|▁",
)
HARMLESS = {
    "BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt",
    "ByteLevel", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Digits", "Punctuation", "UnicodeScripts",
    "WordPiece", "ByteFallback", "Fuse", "BertProcessing", "RobertaProcessing",
}  # fmt: skip
SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
SAFE: tuple[dict[str, Any], ...] = (
    *(SPLIT | {"pattern": {"Regex": pattern}} for pattern in (LLAMA3, *OURS)),
    SPLIT | {"pattern": {"String": " "}, "behavior": "MergedWithPrevious"},  # Gemma's
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
)
MODELS = ("BPE", "WordPiece", "WordLevel", "Unigram")
OTHERS = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "spm.model", "vocab.json", "tekken.json")
INSIDE = ("normalizers", "pretokenizers", "processors", "decoders")  # the parts of a sequence
PROBE = "The 3 cats' café — 東京 🙂\n\tdon't  stop: https://x.org/?a=1&b=2 </s> [MASK] <|endoftext|>"
LONG, SIGNS = 2_000, 40  # length of a run of one character, and how many characters, to test a pattern on
SPARE = 1 << 16  # ids that a vocabulary may leave out
P = ParamSpec("P")
T = TypeVar("T")


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a model or prepared folder; `CheckpointError` for one that cannot or should not be read."""
    if not path.is_file():
        raise missing(path)
    settings = read_json(path)
    model = settings.get("model")
    if isinstance(model, dict) and "type" in model and model["type"] not in MODELS:
        types = ", ".join(MODELS)
        raise CheckpointError(
            f"{path}: a tokenizer of type {model['type']!r:.80} is not one we read; there are: {types}"
        )
    if not harmless(settings):
        size = path.stat().st_size
        try_out = Confined(f"{__name__}:attempt", 1.0 + size / 5_000_000, MEMORY + 16 * size)
        try:
            try_out(path=str(path))
        except RegardError as e:
            raise CheckpointError(f"{path} cannot be used as a tokenizer: {e}") from None
        finally:
            try_out.stop()
    tokenizer = opened(path)
    tokenizer.no_truncation()  # published files may hold a truncation setting
    tokenizer.no_padding()
    return tokenizer


def missing(path: Path) -> RegardError:
    """The error for a folder without tokenizer.json: which other tokenizer it has, and how to convert it."""
    folder = path.parent
    if not (folder / "config.json").is_file():
        return no_run(folder)
    if others := [name for name in OTHERS if (folder / name).is_file()]:
        way = f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
        what = f"{folder} has no {path.name}, and {', '.join(others)} cannot be read"
        return CheckpointError(what, f"transformers writes it: {way}")
    return CheckpointError(f"{folder} is a model folder without its {path.name}; copy that too")


def opened(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_str(path.read_text("utf-8"))
    except BaseException as e:
        if not of_library(e) and not isinstance(e, ValueError):
            raise
        raise CheckpointError(f"{path} cannot be read as a tokenizer ({first_line(e)})") from None


def attempt(path: str) -> None:
    """In the child: read the file, then encode and decode texts designed to provoke its patterns."""
    tokenizer = opened(Path(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    parts = read_json(Path(path))
    named = "".join(str(parts.get(part)) for part in ("normalizer", "pre_tokenizer"))
    signs = list(dict.fromkeys(" a0!\n" + named))
    tail = "!" + "".join(signs)  # makes a pattern fail only at the very end
    texts = ["", PROBE, *(sign * LONG + tail for sign in signs[:SIGNS])]
    for text in texts:
        try:
            for special in (True, False):
                tokenizer.decode(tokenizer.encode(text, add_special_tokens=special).ids)
        except Exception:  # a text it cannot encode; a panic is not an Exception, and ends the child
            continue


def harmless(settings: dict[str, Any]) -> bool:
    """Whether a file consists of parts that cannot hang, grow a text, or panic."""
    try:
        model = settings["model"]
        joined = model["type"] == "BPE" and not model.get("continuing_subword_prefix")
        parts = (settings.get(name) for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"))
        return (joined or model["type"] in ("WordPiece", "WordLevel")) and all(map(part_is_harmless, parts))
    except (KeyError, TypeError, AttributeError, RecursionError):  # the child process will report it
        return False


def part_is_harmless(part: Any) -> bool:
    if part is None or part in SAFE:
        return True
    if part["type"] == "Sequence":
        return all(part_is_harmless(one) for name in INSIDE for one in part.get(name) or ())
    if part["type"] == "TemplateProcessing":
        pieces = [*part["single"], *part["pair"]]
        named = {piece["SpecialToken"]["id"] for piece in pieces if "SpecialToken" in piece}
        return named <= set(part["special_tokens"])
    return part["type"] in HARMLESS


def with_path(path: Path, build: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `build` returns; its errors name the file."""
    try:
        return build(*args, **kwargs)
    except (CheckpointError, DataError) as e:
        raise CheckpointError(f"{path}: {e}") from None


COMMON = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_input_names": ["input_ids", "attention_mask"],
    "clean_up_tokenization_spaces": False,
}


def write_files(folder: Path, tokenizer: Tokenizer, config: dict[str, Any], common: dict[str, Any] = COMMON) -> None:
    """Write tokenizer.json and tokenizer_config.json, as `transformers.AutoTokenizer` reads them."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), "utf-8")
    write_json(folder / "tokenizer_config.json", common | config)


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """One more than the largest id, the rows of an embedding table; `CheckpointError` if most would be unused."""
    ids = tokenizer.get_vocab(with_added_tokens=True).values()
    size = max(ids, default=0) + 1
    if size > 2 * len(ids) + SPARE:
        raise CheckpointError(f"a vocabulary of {len(ids):,} tokens with ids up to {size - 1:,}")
    return size


def guarded(method: Callable[P, T]) -> Callable[P, T]:
    """A method that passes text to the library, whose failures, including panics, become a `DataError`."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except BaseException as e:
            if not of_library(e):
                raise
            raise DataError(f"the model's tokenizer cannot read this text ({first_line(e)})") from None

    return call


def of_library(e: BaseException) -> bool:
    """Whether the library raised this: a plain Exception, or a panic, which is not an Exception."""
    return type(e) is Exception or type(e).__name__ == "PanicException"


def first_line(e: BaseException) -> str:
    return (str(e).splitlines() or [type(e).__name__])[0][:200]
