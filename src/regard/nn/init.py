"""One function per published scheme."""

from torch import nn


def glorot_(model: nn.Module) -> None:
    """Glorot and Bengio 2010 for matrices, zero biases, embeddings with spread D^-1/2: what the 2017 code used.

    Fused maps (`qkv`, `kv`) are drawn part by part, so that fusing does not change the spread.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            widths = getattr(module, "parts", None) or [module.out_features]
            for part in module.weight.data.split(widths):
                nn.init.xavier_uniform_(part)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])
