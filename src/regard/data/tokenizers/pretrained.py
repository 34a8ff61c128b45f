"""The byte-level tokenizer of a published folder (gpt2, Llama 3, SmolLM2): tokenizer.json and the files next to it."""

import codecs
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders

from regard.data.tokenizers.opened import guarded, open_tokenizer, vocabulary_size, with_path, write_files
from regard.errors import CheckpointError
from regard.jsonfile import read_json_if_any

TEMPLATE_FILE = "chat_template.jinja"


def _characters_of_bytes() -> dict[str, int]:
    """GPT-2's visible characters for bytes: Latin-1 if visible, otherwise the next from 256 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in visible]
    return {chr(b): b for b in visible} | {chr(256 + n): b for n, b in enumerate(hidden)}


BYTE_OF = _characters_of_bytes()
CHARACTER_OF = {b: c for c, b in BYTE_OF.items()}


class Pretrained:
    """Byte-level tokens: every text can be encoded, and `decode(encode(text)) == text` unless the folder normalises.

    Special tokens in a text are plain text, unless `special=True`.
    """

    def __init__(self, tokenizer: Tokenizer, config: dict[str, Any], ends: Sequence[int] = (), chat_template: str = ""):
        self.check(tokenizer)
        self.tokenizer, self.config, self.chat_template = tokenizer, config, chat_template
        tokenizer.encode_special_tokens = True
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = {id for id, token in added.items() if token.special}
        pieces = {id: piece for piece, id in tokenizer.get_vocab(with_added_tokens=False).items()}
        self.size = vocabulary_size(tokenizer)
        self._bytes = [
            self.added_bytes(added[id]) if id in added else self.to_bytes(pieces.get(id, "")) for id in range(self.size)
        ]
        self.special = {name: text for name in config if name.endswith("_token") and (text := content(config[name]))}
        eos = tokenizer.token_to_id(self.special.get("eos_token", ""))
        self.ends = tuple(dict.fromkeys([*([] if eos is None else [eos]), *ends]))
        self.eos = self.ends[0] if self.ends else None
        self.bos = self._before()

    def check(self, tokenizer: Tokenizer) -> None:
        if not isinstance(tokenizer.decoder, decoders.ByteLevel):
            model, decoder = type(tokenizer.model).__name__, type(tokenizer.decoder).__name__
            raise CheckpointError(
                f"a {model} tokenizer with the decoder {decoder}; expected a byte-level one, like gpt2's and Llama "
                "3's, or SentencePiece's BPE, like Llama 2's and Mistral's"
            )

    def to_bytes(self, piece: str) -> bytes:
        """The bytes a token adds to a text."""
        return to_bytes(piece)

    def added_bytes(self, token: AddedToken) -> bytes:
        """The same for a token that was added to the vocabulary."""
        return token.content.encode()

    @guarded
    def _before(self) -> int | None:
        """The id that the published tokenizer puts before a text."""
        with_special, plain = (self.tokenizer.encode("a", add_special_tokens=yes).ids for yes in (True, False))
        return with_special[0] if with_special[: len(plain)] != plain else None

    @classmethod
    def load(cls, folder: Path) -> "Pretrained":
        """The tokenizer of a model folder or prepared folder."""
        folder = Path(folder)
        tokenizer = open_tokenizer(path := folder / "tokenizer.json")
        config = read_json_if_any(folder / "tokenizer_config.json")
        others = [read_json_if_any(folder / name) for name in ("generation_config.json", "config.json")]
        ends = [id for other in others for id in _ids(other)]
        return with_path(path, lambda: cls(tokenizer, config, ends, _template(folder, config)))

    def save(self, folder: Path, max_length: int = 1024) -> None:
        """Write the files this was read from, for models with a context of `max_length`."""
        config = {k: v for k, v in self.config.items() if k != "chat_template"}
        if self.eos is not None and "eos_token" not in self.special:  # known from the model's config alone
            config["eos_token"] = self.token_bytes(self.eos).decode()
        write_files(folder, self.tokenizer, config | {"model_max_length": max_length})
        if self.chat_template:
            (Path(folder) / TEMPLATE_FILE).write_text(self.chat_template, "utf-8")

    @cached_property
    def _reading_special(self) -> Tokenizer:
        """A second tokenizer that recognises special tokens: the switch is per object, and threads may share ours."""
        return Tokenizer.from_str(self.tokenizer.to_str())

    @guarded
    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of `text`, with nothing added before or after."""
        return (self._reading_special if special else self.tokenizer).encode(text, add_special_tokens=False).ids

    @guarded
    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """`encode` for many texts, on all cores."""
        tokenizer = self._reading_special if special else self.tokenizer
        return [e.ids for e in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; special tokens are left out, and `�` replaces bytes that are not a character."""
        return b"".join(self.token_bytes(i) for i in ids if i not in self.special_ids).decode("utf-8", "replace")

    def piece(self, id: int) -> str:
        """The text of one token for display: a line break is `\\n`, half a character its bytes, such as `<0xC3>`."""
        return printable(self.token_bytes(id))

    def token_bytes(self, id: int) -> bytes:
        """The bytes the token adds to the text; none for an id beyond the vocabulary, as padded heads have."""
        return self._bytes[id] if id < self.size else b""


def printable(data: bytes) -> str:
    """`data` on one line: characters as they are, hidden ones escaped, and bytes that are not a character in hex."""
    text = data.decode("utf-8", "in_hex")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _in_hex(e: UnicodeError) -> tuple[str, int]:
    assert isinstance(e, UnicodeDecodeError)
    return "".join(f"<0x{b:02X}>" for b in e.object[e.start : e.end]), e.end


codecs.register_error("in_hex", _in_hex)


def to_bytes(piece: str) -> bytes:
    """GPT-2's visible characters as the bytes they stand for; a token with any other character in UTF-8."""
    try:
        return bytes(BYTE_OF[c] for c in piece)
    except KeyError:
        return piece.encode()


def content(token: Any) -> str:
    """The text of a token in tokenizer_config.json, which may be a dict."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else ""


def _ids(config: dict[str, Any]) -> list[int]:
    """`eos_token_id`: one, several or none."""
    ids = config.get("eos_token_id")
    return [i for i in (ids if isinstance(ids, list) else [ids]) if isinstance(i, int)]


def _template(folder: Path, config: dict[str, Any]) -> str:
    """The chat template: a separate file, or text in tokenizer_config.json, or the `default` of several there."""
    if (path := folder / TEMPLATE_FILE).is_file():
        return path.read_bytes().decode("utf-8", "replace")
    template = config.get("chat_template") or ""
    if isinstance(template, list):
        named = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
        template = named[0].get("template") if named else ""
    if not isinstance(template, str):
        raise CheckpointError(f"the chat template in tokenizer_config.json is a {type(template).__name__}, not text")
    return template
