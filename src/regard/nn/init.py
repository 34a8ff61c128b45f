"""Weight initialisation: one function per published scheme."""

import math
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.nn.recurrent import SlideCell


def glorot_(model: nn.Module) -> None:
    """Glorot and Bengio 2010 for matrices, zero biases, embeddings with spread D^-1/2: what the 2017 code used.

    Fused layers (`qkv`, `kv`) are initialised part by part, so that fusing does not change the spread. A layer's `gain`
    scales its weights.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            widths = getattr(module, "parts", None) or [module.out_features]
            for part in module.weight.data.split(widths):
                nn.init.xavier_uniform_(part, getattr(module, "gain", 1.0))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])


def gpt2_(model: nn.Module, layers: int) -> None:
    """Radford et al. 2019: a spread of 0.02, divided by √(2·layers) for what adds to the residual stream."""
    for name, p in model.named_parameters():
        if p.ndim == 2:
            adds = name.endswith((".attention.out.weight", ".mlp.down.weight"))
            nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if adds else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(p)


def bert_(model: nn.Module) -> None:
    """Devlin et al. 2019: a spread of 0.02 for every matrix and table, zero biases."""
    for name, p in model.named_parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(p)


def recurrent_(model: nn.Module) -> None:
    """Torch's own: uniform within ±D^-1/2, so that sums of D have a spread below one. Biases are zero, except that the
    forget gate starts open (Jozefowicz et al. 2015); embeddings have a spread of 1."""
    for name, p in model.named_parameters():
        if name == "token.weight":
            nn.init.normal_(p)
        elif p.ndim == 2:
            width = p.size(1) if not name.endswith("W_xh") else model.get_parameter(name.replace("xh", "hh")).size(1)
            nn.init.uniform_(p, -(width**-0.5), width**-0.5)
        else:
            nn.init.zeros_(p)
    for cell in model.modules():
        if isinstance(cell, SlideCell) and cell.kind == "lstm":
            with torch.no_grad():
                cell.b_h.chunk(4)[1].fill_(1.0)  # input, forget, cell, output


class skip_init(TorchFunctionMode):
    """Skip random initialisation, for weights that come from a file: for a large model it takes seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
