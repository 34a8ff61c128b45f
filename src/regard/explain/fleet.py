"""Estimate the memory and speed of training a language model on many GPUs.

A step is matrix products at the rate that a device sustains, attention at half of it, and all other work at the rate of
its memory; then communication, part of which overlaps with computation. docs/scale.md compares the estimates with
measured and published figures.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from regard.errors import ConfigError

GIB = 2.0**30
ATTENTION = 0.5  # of the rate of matrix products
EFFICIENCY = 0.9  # of a step's time, in which kernels run
BANDWIDTH = 0.8  # of the nominal rate of memory, links and network
PASSES = 54  # vectors per token read or written by each layer outside products, forward and backward
EXPOSED = 0.3  # of the communication, which does not overlap with computation
LATENCY = 15e-6  # seconds of a collective, for each doubling of the devices
SMALL = 150  # products of this width run at half of the sustained rate: w / (w + SMALL)
ROOM = 0.9  # of a device's memory
KEPT = 34  # bytes of activations for each token, layer and unit of width (Korthikanti et al. 2022, without scores)
LOGITS = 2**30  # computed at a time, at most
OPTIMAL = 20  # training tokens per parameter (Hoffmann et al. 2022)


@dataclass(frozen=True, kw_only=True)
class Device:
    """Rates of a GPU: bf16 FLOP/s by the data sheet and sustained, memory in bytes, its bandwidth, and the bandwidth to
    GPUs of the same machine, each way, in bytes per second."""

    peak: float
    sustained: float
    memory: float
    memory_rate: float
    link_rate: float


DEVICES = {
    "a100": Device(peak=312e12, sustained=240e12, memory=80e9, memory_rate=2.0e12, link_rate=300e9),
    "h100": Device(peak=989e12, sustained=570e12, memory=80e9, memory_rate=3.35e12, link_rate=450e9),
    "h200": Device(peak=989e12, sustained=760e12, memory=141e9, memory_rate=4.8e12, link_rate=450e9),
    "b200": Device(peak=2250e12, sustained=1500e12, memory=180e9, memory_rate=8.0e12, link_rate=900e9),
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes that determine the cost of a decoder."""

    layers: int
    width: int
    ffn: int
    vocab: int
    context: int
    gated: bool = False  # three matrices in the MLP, not two
    kv_share: float = 1.0  # width of keys, and of values, over that of queries
    tied: bool = True

    @property
    def layer_weights(self) -> float:
        attention = (2 + 2 * self.kv_share) * self.width**2
        return attention + (3 if self.gated else 2) * self.width * self.ffn

    @property
    def parameters(self) -> float:
        return self.layers * self.layer_weights + (1 if self.tied else 2) * self.vocab * self.width

    @property
    def attention_flops(self) -> float:
        """Per training token, which sees half of the others on average."""
        return 6.0 * self.layers * self.context * self.width

    @property
    def product_flops(self) -> float:
        return 6.0 * (self.layers * self.layer_weights + self.vocab * self.width)

    @property
    def flops(self) -> float:
        return self.product_flops + self.attention_flops


def shape_of(parameters: float, vocab: int, context: int) -> Shape:
    """A decoder of about `parameters` parameters, 128 times as wide as deep (as GPT-3 and Llama are, roughly)."""
    layers = max(1, round((parameters / (12 * 128**2)) ** (1 / 3)))
    width = max(128, round(math.sqrt(parameters / (12 * layers)) / 128) * 128)
    return Shape(layers=layers, width=width, ffn=4 * width, vocab=vocab, context=context)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    device: Device
    gpus: int
    per_node: int = 8
    network: float = 50e9  # bytes per second between machines, for each GPU

    def __post_init__(self):
        if self.gpus < 1 or self.per_node < 1 or (self.gpus > self.per_node and self.gpus % self.per_node):
            raise ConfigError(
                f"{self.gpus} GPUs are not whole machines of {self.per_node}; change --gpus or --per-node"
            )

    @property
    def machine(self) -> int:
        return min(self.gpus, self.per_node)

    def rate(self, group: int) -> float:
        """The bandwidth among `group` neighbouring GPUs: tensors from another machine arrive once, through the network
        adapters of all its GPUs."""
        link = self.device.link_rate
        return BANDWIDTH * (link if group <= self.machine else min(link, self.machine * self.network))


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A layout, with the memory of one GPU and the speed of the fleet."""

    kind: str  # ddp, fsdp or hsdp
    checkpoint: bool
    tokens: int  # per micro-batch
    accumulate: int  # micro-batches per GPU and step
    memory: "StepMemory"
    fits: bool
    tokens_per_second: float
    mfu: float


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Bytes of one GPU. In the backward pass gradients replace activations, block by block, so the peak is at its start
    or at its end."""

    states: float  # weights, moments, copies of them
    gradients: float
    activations: float  # what the forward pass leaves, and logits
    block: float  # what the backward pass of one block needs

    @property
    def most(self) -> float:
        return self.states + max(self.activations, self.gradients + self.block)


def estimates(shape: Shape, fleet: Fleet, batch: float) -> Iterator[Estimate]:
    """Every layout for steps of `batch` tokens, each with the largest micro-batch that fits."""
    kinds = ["ddp"] + ["fsdp"] * (fleet.gpus > 1) + ["hsdp"] * (fleet.gpus > fleet.machine)
    for kind in kinds:
        for checkpoint in (False, True):
            yield estimate(shape, fleet, kind, checkpoint, batch)


def estimate(shape: Shape, fleet: Fleet, kind: str, checkpoint: bool, batch: float, rows: int = 0) -> Estimate:
    """The estimate for one layout. `rows`: texts per micro-batch; 0: as many as fit and divide a GPU's share."""
    share = max(1, round(batch / shape.context / fleet.gpus))  # texts per GPU and step
    room = ROOM * fleet.device.memory
    fitting = takewhile(lambda n: memory_of(shape, fleet, kind, checkpoint, n).most <= room, range(1, share + 1))
    rows = rows or max((n for n in fitting if share % n == 0), default=1)
    memory = memory_of(shape, fleet, kind, checkpoint, rows)
    tokens, accumulate = rows * shape.context, -(-share // rows)
    compute = accumulate * tokens * token_seconds(shape, fleet.device, checkpoint) + optimiser_seconds(
        shape, fleet, kind
    )
    exchange = exchange_seconds(shape, fleet, kind, accumulate)
    seconds = compute + max(EXPOSED * exchange, exchange - compute)
    rate = fleet.gpus * accumulate * tokens / seconds
    return Estimate(
        kind=kind,
        checkpoint=checkpoint,
        tokens=tokens,
        accumulate=accumulate,
        memory=memory,
        fits=memory.most <= room,
        tokens_per_second=rate,
        mfu=rate * shape.flops / (fleet.gpus * fleet.device.peak),
    )


def token_seconds(shape: Shape, device: Device, checkpoint: bool) -> float:
    again = 4 / 3 if checkpoint else 1.0  # a second forward pass
    sustained = device.sustained * shape.width / (shape.width + SMALL)
    products = (shape.product_flops + shape.attention_flops / ATTENTION) / sustained
    passes = 2 * (PASSES * shape.layers * shape.width + 4 * shape.vocab) / (BANDWIDTH * device.memory_rate)
    return again * (products + passes) / EFFICIENCY


def optimiser_seconds(shape: Shape, fleet: Fleet, kind: str) -> float:
    """fp32 weight, gradient and two moments are read, and all but the gradient written."""
    return 28 * shape.parameters / shards(fleet, kind) / (BANDWIDTH * fleet.device.memory_rate)


def exchange_seconds(shape: Shape, fleet: Fleet, kind: str, accumulate: int) -> float:
    """DDP sums fp32 gradients once per step. FSDP gathers bf16 shards twice per micro-batch, and sums once per step."""
    if fleet.gpus == 1:
        return 0.0
    size, group = shape.parameters, shards(fleet, kind)
    delay = LATENCY * math.log2(fleet.gpus) * shape.layers
    if kind == "ddp":
        return 8 * size / fleet.rate(fleet.gpus) + delay
    gathered = (4 * accumulate + 4) * size / fleet.rate(group) + 3 * accumulate * delay
    return gathered + (8 * size / group / fleet.rate(fleet.gpus) if kind == "hsdp" else 0.0)


def shards(fleet: Fleet, kind: str) -> int:
    return {"ddp": 1, "fsdp": fleet.gpus, "hsdp": fleet.machine}[kind]


def memory_of(shape: Shape, fleet: Fleet, kind: str, checkpoint: bool, rows: int) -> StepMemory:
    """The memory of a step with micro-batches of `rows` texts."""
    tokens, size = rows * shape.context, shape.parameters / shards(fleet, kind)
    block = KEPT * shape.width * tokens
    kept = 2 * shape.layers * shape.width * tokens + block if checkpoint else shape.layers * block
    logits = 2 * min(LOGITS, tokens * shape.vocab)
    states = 12 * size  # weights and moments in fp32
    if kind == "ddp":
        states += (0 if checkpoint else 2 * size) + (4 * size if fleet.gpus > 1 else 0)  # bf16 weights; DDP's buckets
    else:
        states += 6 * (2 * shape.layer_weights + 2 * shape.vocab * shape.width)  # two blocks and the embeddings, whole
    return StepMemory(states=states, gradients=4 * size, activations=kept + logits, block=block)


def optimal(flops: float) -> tuple[float, float]:
    """The optimal parameters and tokens for a budget (Hoffmann et al. 2022): 6 N D FLOPs, D = 20 N."""
    parameters = math.sqrt(flops / (6 * OPTIMAL))
    return parameters, OPTIMAL * parameters
