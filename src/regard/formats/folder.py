"""The Hugging Face folder, which transformers, vLLM and others open."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.config import ADAPTER, model_file
from regard.errors import CheckpointError
from regard.formats.base import BESIDE, Exported, Format, copy_files, write_folder
from regard.jsonfile import read_json
from regard.models.published import OURS, load_model, save_weights
from regard.models.published.weights import BIN, FILE, weight_files


def model_files(folder: Path) -> list[str]:
    """The files that make up the model of a folder: settings, tokenizer, card and weights."""
    weights = weight_files(folder)
    index = f"{BIN if weights[0].suffix == '.bin' else FILE}.index.json"
    return [name for name in (*BESIDE, index, *(path.name for path in weights)) if (folder / name).is_file()]


@contextmanager
def merged(folder: Path) -> Iterator[Path]:
    """The folder, or if it holds only a LoRA adapter, a temporary one with the merged model."""
    if model_file(folder).name != ADAPTER:
        yield folder
        return
    with TemporaryDirectory() as place:
        whole = Path(place)
        copy_files(folder, whole, model_files(folder))
        save_weights(load_model(folder), whole)
        yield whole


class HuggingFace(Format):
    """Copies the model of a run folder, without checkpoints and logs."""

    name = "hf"

    def write(self, source: Path, target: Path, dtype: str) -> Exported:
        files = write_folder(source, target, model_files(source))
        try:
            load_model(target)
        except CheckpointError as e:
            raise CheckpointError(f"the exported model does not load: {e}") from None
        config = read_json(target / "config.json")
        foreign = config["model_type"].startswith(OURS)
        name = (config.get("architectures") or ["AutoModel"])[0]
        opens = f'open it with: transformers.{name}.from_pretrained("{target}")'
        note = "this architecture has no published counterpart: only regard opens it" if foreign else opens
        return Exported(target, files, [note], {"transformers": not foreign})
