"""What sentence-transformers adds to a BERT folder: how hidden states become sentence vectors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import inside
from regard.errors import CheckpointError
from regard.jsonfile import read_json, read_json_if_any, write_json
from regard.models.bert import POOLINGS

OLD = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
MODULES, POOLING, LENGTH = "modules.json", "1_Pooling", "sentence_bert_config.json"


@dataclass(frozen=True)
class Sentences:
    """The settings of a folder; by default the mean of all tokens, normalised."""

    pooling: str = "mean"
    normalise: bool = True
    max_length: int = 0  # 0: the model's own limit
    lower: bool = False

    @classmethod
    def load(cls, folder: Path) -> "Sentences":
        if not (folder / MODULES).is_file():
            return cls()
        path = folder / MODULES
        try:
            modules = {m["type"].rsplit(".", 1)[-1]: m["path"] for m in read_json(path, list)}
            pooling = read_json_if_any(path := inside(folder, modules.get("Pooling", POOLING), path) / "config.json")
            about = read_json_if_any(path := folder / LENGTH)
            tokenizer = read_json_if_any(path := folder / "tokenizer_config.json")
            prompt = read_json_if_any(path := folder / "config_sentence_transformers.json").get("default_prompt_name")
            mode = _mode(pooling)
        except (ValueError, KeyError, AttributeError, TypeError) as e:
            raise CheckpointError(f"{path}: cannot be read ({type(e).__name__}: {e})") from None
        layers = [name for name in modules if name not in ("Transformer", "Pooling", "Normalize")]
        if layers or prompt or mode not in POOLINGS:
            what = f"a {layers[0]} layer" if layers else f"the prompt {prompt!r}" if prompt else f"{mode} pooling"
            raise CheckpointError(f"{folder} computes its vectors with {what}; we read only {', '.join(POOLINGS)}")
        longest = about.get("max_seq_length") or tokenizer.get("model_max_length") or 0
        return cls(mode, "Normalize" in modules, int(min(longest, 1 << 30)), bool(about.get("do_lower_case")))

    def save(self, folder: Path, width: int) -> None:
        """Write the layout that every version of sentence-transformers reads."""
        kinds = [("", "Transformer"), (POOLING, "Pooling"), *([("2_Normalize", "Normalize")] if self.normalise else [])]
        modules = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(kinds)
        ]
        _write(folder / MODULES, modules)
        _write(folder / LENGTH, {"max_seq_length": self.max_length or None, "do_lower_case": self.lower})
        pooling = {"word_embedding_dimension": width, **{name: mode == self.pooling for mode, name in OLD.items()}}
        _write(folder / POOLING / "config.json", pooling)
        if self.normalise:
            _write(folder / "2_Normalize" / "config.json", {})
        _write(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})


def _mode(pooling: dict[str, Any]) -> str:
    """The pooling mode, such as "mean"; several are joined by "+"."""
    if "pooling_mode" in pooling:
        return pooling["pooling_mode"]
    names = {name: mode for mode, name in OLD.items()}
    chosen = [names.get(name, name) for name, on in pooling.items() if name.startswith("pooling_mode_") and on]
    return "+".join(chosen) or "no"


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, value)
