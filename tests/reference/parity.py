"""One comparison with transformers for every published layout: a layout enters `CASES` of test_layouts.py."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.models import build
from regard.models.base import EncoderDecoder, LanguageModel
from regard.models.bert import LABELLED, MASKED
from regard.models.published import published_weights, to_published, weights_bytes

VOCAB = 83
LENGTHS = torch.tensor([20, 6, 13])
REAL = torch.arange(20) < LENGTHS[:, None]
Outputs = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A small model of ours, the class of transformers that it is, and how close they come."""

    config: Any
    architecture: str
    tolerance: float = 1e-9  # 1e-5 where theirs computes in float32 whatever its weights are
    how: Mapping[str, Any] = field(default_factory=dict)  # of their from_pretrained
    slopes: Callable[[str, Any], float] = lambda name, config: 1.0  # their gradient over ours, for a scaled tensor
    prepare: Callable[[nn.Module], None] = lambda model: None

    def ours(self, shake: Callable[..., nn.Module]) -> Any:
        torch.manual_seed(0)
        model = shake(build(self.config), 6.0).eval()
        with torch.no_grad():
            self.prepare(model)
        return model

    def theirs(self, folder: Path, monkeypatch: Any) -> Any:
        """Their model of our folder, with nothing missing or unexpected, in float64; its norms, too."""
        cls = getattr(transformers, self.architecture)
        model, info = cls.from_pretrained(folder, output_loading_info=True, **self.how)
        assert not any(info.values()), info
        for part in {
            type(part) for part in model.modules() if type(part).__name__.endswith(("RMSNorm", "T5LayerNorm"))
        }:
            monkeypatch.setattr(part, "forward", exact_norm)
        return model.double().eval()


def exact_norm(norm: Any, x: Tensor) -> Tensor:
    """What an RMS norm of theirs computes in float32, in the precision of `x`."""
    one = 1.0 if type(norm).__name__.startswith("Gemma") else 0.0
    eps = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
    return F.rms_norm(x, (x.size(-1),), one + norm.weight, eps)


def save(model: Any, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(to_published(model.config, eos=0)))
    (folder / "model.safetensors").write_bytes(weights_bytes(model))
    return folder


def inputs() -> tuple[Tensor, Tensor]:
    """Three texts of different lengths, 4 to 82, and what their translations begin with."""
    generator = torch.Generator().manual_seed(2)
    return tuple(torch.randint(4, VOCAB - 1, (3, size), generator=generator) for size in (20, 7))


def outputs(model: Any) -> Outputs:
    """All that our heads return, by transformers' names."""
    texts, begun = inputs()
    if isinstance(model, LanguageModel):
        return {"logits": model.logits(model(texts))}
    if isinstance(model, EncoderDecoder):
        return {"logits": model.logits(model(texts, LENGTHS, begun))}
    hidden, head = model(texts, LENGTHS), model.config.head
    if head in LABELLED:
        return {"logits": model.scores(model.summary(hidden, LENGTHS) if head == "sequence" else hidden)}
    if head in MASKED:
        return {"logits": model.logits(hidden)}
    return {"last_hidden_state": hidden} | ({"pooler_output": model.pooled(hidden[:, 0])} if head == "pooler" else {})


def their_outputs(model: Any, ours: Any) -> Outputs:
    texts, begun = inputs()
    if isinstance(ours, LanguageModel):
        return model(texts)
    padded = texts.masked_fill(~REAL, model.config.pad_token_id)
    more = {"decoder_input_ids": begun} if isinstance(ours, EncoderDecoder) else {}
    return model(padded, attention_mask=REAL.long(), **more)


def real(tensor: Tensor) -> Tensor:
    """Without what stands at padding."""
    return tensor[REAL] if tensor.shape[:2] == REAL.shape else tensor


def gradients(ours: Any) -> dict[str, Tensor]:
    """Those of our parameters, under their published names; a published name may stand for an affine map of ours."""
    grads = [p.grad for p in ours.parameters()]
    published = []
    for values in (grads, [None] * len(grads)):
        for p, grad in zip(ours.parameters(), values, strict=True):
            p.data = torch.zeros_like(p) if grad is None else grad
        published.append(published_weights(ours))
    return {name: tensor - published[1][name] for name, tensor in published[0].items()}


def their_gradients(theirs: Any, names: Collection[str]) -> dict[str, Tensor]:
    """Those of their parameters under `names`: of their modules, or where these are newer of their files."""
    grads = {name: gradient(p) for name, p in theirs.named_parameters(remove_duplicate=False)}
    buffers = {name for name, _ in theirs.named_buffers()}
    if set(names) <= grads.keys() | buffers:
        return grads
    for p in theirs.parameters():
        p.data = gradient(p)
    with TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return load_file(Path(folder) / "model.safetensors")


def gradient(p: nn.Parameter) -> Tensor:
    """The gradient, or zeros for none."""
    return torch.zeros_like(p) if p.grad is None else p.grad


def compare_gradients(ours: Any, theirs: Any, slopes: Callable[[str, Any], float] = lambda name, config: 1.0) -> None:
    """Every parameter of either has the same gradient in both; one that only `theirs` has, has none."""
    mine = gradients(ours)
    expected = their_gradients(theirs, mine)
    compared = {expected[name].data_ptr() for name in mine.keys() & expected.keys()}  # tied ones have several names
    assert all(grad.data_ptr() in compared for grad in expected.values() if grad.any())
    largest = max(float(grad.abs().max()) for grad in mine.values())
    for name in mine.keys() & expected.keys():
        grad = mine[name] * slopes(name, ours.config)
        torch.testing.assert_close(grad, expected[name].float(), rtol=1e-5, atol=1e-6 * largest, msg=name)
