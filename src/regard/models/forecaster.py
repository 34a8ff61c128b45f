"""A forecaster: the past as patches, every column separately (PatchTST, Nie et al. 2023), plus a linear layer."""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.checks import check_model
from regard.nn.blocks import Norm, PreNormEncoderLayer, compute_dtype, dropout
from regard.nn.init import glorot_
from regard.nn.masks import Everything
from regard.nn.positions import Learned
from regard.shapes import check

FLAT = 1e-5  # fraction of the training variance that a constant window is divided by


@dataclass(frozen=True, kw_only=True)
class ForecasterConfig:
    columns: tuple[str, ...] = ("value",)  # names of the forecast columns
    covariates: tuple[str, ...] = ()  # names of the columns known in advance
    lookback: int = 336  # input steps
    horizon: int = 96  # forecast steps
    patch: int = 16
    stride: int = 8  # from one patch to the next; less than `patch` lets them overlap
    width: int = 16
    layers: int = 3
    heads: int = 4
    ffn: int = 128
    dropout: float = 0.3
    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)  # predicted in addition to the mean; (): the mean alone

    def __post_init__(self):
        check_model(self)
        if self.patch > self.lookback:
            raise ConfigError(f"model.patch is {self.patch}, longer than the look-back of {self.lookback} steps")
        if list(self.quantiles) != sorted({q for q in self.quantiles if 0 < q < 1}):
            raise ConfigError(f"model.quantiles are {self.quantiles}; must be increasing, in (0, 1)")

    @property
    def patches(self) -> int:
        return -(-(self.lookback - self.patch) // self.stride) + 1


class Forecaster(nn.Module):
    """Inputs and outputs are in the data's own units: each window is normed, and the forecast scaled back.

    Columns share all weights and do not see each other (channel independence, section 3.1 of the paper). A linear
    layer leads straight from the past to the forecast (TiDE, Das et al. 2023, section 4: a global residual), so that
    the patches learn only the rest. Here it is zero, and the model is PatchTST; `start_from_` sets it for training.

    Covariates are embedded with the patches they belong to. Those of a future step, with the mean state of the
    patches, add to the forecast of that step (TiDE's temporal decoder, section 4.2), starting at zero too.
    """

    starts_fitted = False  # whether it forecasts before training
    spread: Tensor
    drift: Tensor
    covariate_mean: Tensor
    covariate_std: Tensor

    def __init__(self, c: ForecasterConfig):
        super().__init__()
        self.config = c
        self.register_buffer("spread", torch.ones(len(c.columns)))  # of each column in training: the loss's unit
        if c.covariates:
            self.register_buffer("covariate_mean", torch.zeros(len(c.covariates)))  # in training
            self.register_buffer("covariate_std", torch.ones(len(c.covariates)))
            self.embed_covariates = nn.Linear(c.patch * len(c.covariates), c.width, bias=False)
            self.ahead = nn.Sequential(
                nn.Linear(len(c.covariates) + c.width, c.ffn), nn.GELU(), nn.Linear(c.ffn, 1 + len(c.quantiles))
            )
        self.embed = nn.Linear(c.patch, c.width)
        self.place = Learned(c.patches, c.width)
        self.drop = dropout(c.dropout)
        self.layers = cast("list[PreNormEncoderLayer]", nn.ModuleList(self.layer(c) for _ in range(c.layers)))
        self.norm = Norm(c.width)
        outputs = c.horizon * (1 + len(c.quantiles))
        self.head = nn.Linear(c.patches * c.width, outputs)
        self.straight = nn.Linear(c.lookback, outputs, bias=False)
        self.register_buffer("drift", torch.zeros(outputs), persistent=False)
        glorot_(self)
        nn.init.zeros_(self.straight.weight)
        if c.covariates:
            nn.init.zeros_(self.ahead[-1].weight)  # pyrefly: ignore

    @staticmethod
    def layer(c: ForecasterConfig) -> PreNormEncoderLayer:
        return PreNormEncoderLayer(c.width, c.heads, c.ffn, c.dropout, "gelu")

    def forward(self, past: Tensor, covariates: Tensor | None = None) -> Tensor:
        """B L C, the last L steps of C columns, and with covariates B L+H K -> B H C 1+Q: the mean, then the quantiles,
        of the next H steps."""
        c = self.config
        check(past, "B L C", L=c.lookback, C=len(c.columns))
        B, _, C = past.shape
        centre, scale = self.norms(past)
        seen = ((past - centre) / scale).transpose(1, 2).flatten(0, 1)  # B·C L
        x = self.embed(compute_dtype(self.patches(seen)))  # B·C N P -> B·C N D
        if covariates is not None:
            check(covariates, "B S K", B=B, S=c.lookback + c.horizon, K=len(c.covariates))
            covariates = ((covariates - self.covariate_mean) / self.covariate_std).nan_to_num()  # missing: the mean
            before = self.patches(covariates[:, : c.lookback].transpose(1, 2).flatten(0, 1))  # B·K N P
            before = before.unflatten(0, (B, -1)).transpose(1, 2).flatten(2)  # B N K·P
            x = x + self.embed_covariates(compute_dtype(before)).repeat_interleave(C, 0)
        x = x + self.place(torch.arange(c.patches, device=x.device))
        x = self.drop(compute_dtype(x))
        for layer in self.layers:
            x = layer(x, Everything())
        x = self.norm(x)
        forecast = self.head(self.drop(x).flatten(1)) + self.straight(seen)  # B·C H·(1+Q)
        if covariates is not None:
            future = covariates[:, c.lookback :].repeat_interleave(C, 0)  # B·C H K
            state = x.mean(1, keepdim=True).expand(-1, c.horizon, -1)  # B·C H D
            forecast = forecast + self.ahead(torch.cat([future.to(state.dtype), state], -1)).flatten(1)
        if self.training:
            forecast = forecast + self.drift
        forecast = forecast.to(past.dtype).view(B, C, c.horizon, -1).transpose(1, 2)  # B H C 1+Q
        return forecast * scale[..., None] + centre[..., None]

    def norms(self, past: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the scale of each window, both B 1 C."""
        variance = past.var(1, keepdim=True, correction=0)
        return past.mean(1, keepdim=True), (variance + FLAT * self.spread**2).sqrt()

    @torch.no_grad()
    def start_from_(self, line: Tensor, past: Tensor, future: Tensor) -> None:
        """Start as a linear forecast, which is kept: `line`, L H, maps differences to the last value. The quantiles of
        its errors on examples, B L C and B H C with NaN in gaps, become those of the model.

        Adam's steps are as large as the weights of such a map, so it is not trained. Nor is the mean error, the drift
        of the training years: it is added in training only, so that the patches do not learn it. A linear map has no
        constant term either, and other years drift elsewhere.
        """
        self.starts_fitted, c, line = True, self.config, line.clone()
        line[-1] += 1 - line.sum(0)  # last + (x - last) @ line; windows are normed by their mean instead
        self.straight.weight.copy_(line.T.repeat_interleave(1 + len(c.quantiles), 0))
        self.straight.weight.requires_grad_(False)
        centre, scale = self.norms(past)
        miss = (future - centre) / scale - torch.einsum("blc,lh->bhc", (past - centre) / scale, line.to(past))
        weight = ((scale / self.spread) ** 2).expand_as(miss).masked_fill(miss.isnan(), 0.0)  # as in the loss
        drift = (miss.nan_to_num() * weight).sum((0, 2)) / weight.sum((0, 2)).clamp_min(1e-12)  # H
        rest = (miss - drift[:, None]).transpose(0, 1).flatten(1)  # H B·C
        starts = [torch.zeros_like(drift), *(rest.nanquantile(q, 1).nan_to_num() for q in c.quantiles)]
        nn.init.zeros_(self.head.weight)
        self.head.bias.copy_(torch.stack(starts, 1).flatten())
        self.drift.copy_(drift.repeat_interleave(1 + len(c.quantiles)))

    def patches(self, x: Tensor) -> Tensor:
        """B·C L -> B·C N P. The last patch ends with the last step; before the first step its value is repeated."""
        c = self.config
        short = (c.patches - 1) * c.stride + c.patch - c.lookback
        return F.pad(x[:, None], (short, 0), mode="replicate")[:, 0].unfold(-1, c.patch, c.stride)
