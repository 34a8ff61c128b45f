"""Embed: a vector for each text, by a published encoder; it is not trained here."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import ConfigError
from regard.tasks.base import Card, Fit, Task
from regard.tasks.use import Inputs, Options
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.data.contents import Contents


class Embed(Task):
    name = "embed"
    summary = "a vector for each text"
    settings = type(None)
    card = Card(pipeline="feature-extraction", title="A text encoder", use='similar {} "…" --in FILE')
    family, views = "encoder", ("similar",)
    example_texts = ("The cat drank the milk because it was hungry.", "The cat drank the milk because it was sweet.")
    purpose = "embed texts"
    verbs = ("embed", "similar")
    endpoints = ("embeddings",)

    def fits(self, contents: "Contents") -> Fit | None:
        from shlex import quote

        texts, lines = contents.holding("texts"), contents.path.is_file() and contents.count((".txt",))
        if not texts and not lines:
            return None
        column = f" --text {quote(texts[0].name)}" if texts else ""
        command = f'regard similar minilm "some words" --in {quote(str(contents.path))}{column}'
        return Fit("texts to search by meaning; no training needed", (command,))

    def serves(self, config: Any) -> bool:
        from regard.models.bert import LABELLED, MASKED, BertConfig

        return isinstance(config, BertConfig) and config.head not in (*MASKED, *LABELLED)

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str, int8: bool) -> Any:
        from regard.data.tokenizers import load
        from regard.models.published.sentence import Sentences
        from regard.predictors import Embedder

        return Embedder(model, load(folder), device, int8, Sentences.load(folder))

    def count_tokens(self, predictor: Any, inputs: Any) -> int:
        return sum(map(len, predictor.encode(inputs)[0]))

    def to_json(self, answer: Any) -> Any:
        return {"vector": answer.vector.tolist()}

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        raise no_answers(folder, file)


def no_answers(folder: Path, file: Path) -> ConfigError:
    vectors = f"regard embed {folder} {file} --out vectors.npy"
    return ConfigError(
        f"{folder} turns texts into vectors ({vectors}); for answers fine-tune it first: regard finetune {folder} "
        "classify …"
    )
