"""A token per character: nothing to learn, and no way to encode an unseen character."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from regard.config import no_run
from regard.data.tokenizers.opened import write_files
from regard.data.tokenizers.pretrained import printable
from regard.errors import CheckpointError, DataError
from regard.jsonfile import read_json


class Characters:
    """Exactly these characters, in the order of their code points. There is no end token."""

    eos: int | None = None
    bos: int | None = None
    ends: tuple[int, ...] = ()
    chat_template = ""

    def __init__(self, characters: Iterable[str]):
        self.characters = sorted(set(characters))
        if not self.characters:
            raise DataError("no text to take characters from")
        self.size = len(self.characters)
        self.special: dict[str, str] = {}
        points = np.array([ord(c) for c in self.characters])
        self._ids = np.full(points[-1] + 2, -1, np.int64)  # code point -> id; the last entry stands for all beyond
        self._ids[points] = np.arange(self.size)

    @classmethod
    def load(cls, folder: Path) -> "Characters":
        """The tokenizer of a model folder or prepared folder."""
        path = Path(folder) / "tokenizer.json"
        try:
            vocab = read_json(path)["model"]["vocab"]
            single = all(len(c) == 1 for c in vocab)
            if not single or [vocab[c] for c in sorted(vocab)] != list(range(len(vocab))):
                raise CheckpointError(f"{path}: expected single characters, numbered in order")
            return cls(vocab)
        except FileNotFoundError:
            raise no_run(path.parent) from None
        except (TypeError, KeyError, DataError) as e:
            raise CheckpointError(f"{path} cannot be read as a list of characters ({e})") from None

    def save(self, folder: Path, max_length: int = 1024) -> None:
        """Write tokenizer.json and tokenizer_config.json, as `transformers.AutoTokenizer` reads them."""
        ids = {c: i for i, c in enumerate(self.characters)}
        tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))  # not among the ids, so refused
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
        write_files(folder, tokenizer, {"model_max_length": max_length})

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of `text`; `DataError` for an unseen character. There are no special tokens."""
        points = np.frombuffer(text.encode("utf-32-le"), "<u4")
        ids = self._ids[np.minimum(points, len(self._ids) - 1)]
        if ids.size and ids.min() < 0:
            unknown = text[int(np.argmax(ids < 0))]
            raise DataError(
                f"the character {unknown!r} (U+{ord(unknown):04X}) is not among the {self.size} of this model; "
                "leave it out, or train with --tokens bytes, which can encode everything"
            )
        return ids.tolist()

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`."""
        return "".join(self.characters[i] for i in ids)

    def piece(self, id: int) -> str:
        """The character for display: a line break is `\\n`."""
        return printable(self.token_bytes(id))

    def token_bytes(self, id: int) -> bytes:
        """The character in UTF-8."""
        return self.characters[id].encode()
