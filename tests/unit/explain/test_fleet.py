"""The plan of a fleet, compared with throughput that was measured or published, and with published model sizes."""

from dataclasses import replace

import pytest

from regard.errors import ConfigError
from regard.explain.fleet import DEVICES, GIB, Fleet, Shape, estimate, estimates, optimal, shape_of

H100, H200 = DEVICES["h100"], DEVICES["h200"]
TITAN = replace(H100, memory=96e9, memory_rate=2.4e12)  # the GPUs that torchtitan's team measured on
LLAMA8B = Shape(
    layers=32, width=4096, ffn=14336, vocab=128256, context=8192, gated=True, kv_share=0.25, tied=False
)  # Llama 3.1


def mpt(layers: int, width: int) -> Shape:
    return Shape(layers=layers, width=width, ffn=4 * width, vocab=50432, context=2048)


GPT2 = Shape(layers=12, width=768, ffn=3072, vocab=50304, context=1024)
MPT = {"760m": mpt(24, 1536), "1b": mpt(24, 2048), "3b": mpt(32, 2560), "7b": mpt(32, 4096), "13b": mpt(40, 5120),
       "30b": mpt(48, 7168), "70b": mpt(80, 8192)}  # fmt: skip
# shape, device, GPUs, texts of a micro-batch, micro-batches, checkpointing, tokens a second and GPU
MEASURED = {
    "regard, docs/benchmarks.md": (GPT2, H200, 1, 64, 1, False, 590_000),
    "llm-foundry 760m": (MPT["760m"], H100, 32, 24, 1, False, 67_971),
    "llm-foundry 1b": (MPT["1b"], H100, 64, 20, 1, False, 44_402),
    "llm-foundry 3b": (MPT["3b"], H100, 64, 6, 3, False, 22_525),
    "llm-foundry 7b": (MPT["7b"], H100, 8, 6, 1, False, 10_643),
    "llm-foundry 13b": (MPT["13b"], H100, 64, 2, 1, False, 4_800),
    "llm-foundry 30b": (MPT["30b"], H100, 32, 14, 3, True, 2_308),
    "llm-foundry 70b": (MPT["70b"], H100, 64, 8, 4, True, 1_039),
    "torchtitan 8b, 8 GPUs": (LLAMA8B, TITAN, 8, 2, 1, False, 6_667),
    "torchtitan 8b, 128 GPUs": (LLAMA8B, TITAN, 128, 2, 1, False, 6_514),
}


@pytest.mark.parametrize("name", MEASURED)
def test_speed_is_within_a_fifth_of_what_was_measured(name):
    shape, device, gpus, rows, accumulate, checkpoint, measured = MEASURED[name]
    fleet = Fleet(device=device, gpus=gpus)
    batch = rows * accumulate * gpus * shape.context
    way = estimate(shape, fleet, "fsdp" if gpus > 1 else "ddp", checkpoint, batch, rows)
    assert way.accumulate == accumulate
    assert way.tokens_per_second / gpus == pytest.approx(measured, rel=0.2)


def test_memory_is_that_of_the_measured_step():
    way = estimate(GPT2, Fleet(device=H200, gpus=1), "ddp", False, 64 * 1024, 64)
    assert way.memory / GIB == pytest.approx(21.8, rel=0.1)  # docs/benchmarks.md


@pytest.mark.parametrize(
    ("shape", "published"),
    [
        (GPT2, 124.4e6),
        (Shape(layers=48, width=1600, ffn=6400, vocab=50257, context=1024), 1557.6e6),
        (Shape(layers=32, width=4096, ffn=11008, vocab=32000, context=4096, gated=True, tied=False), 6738e6),
        (LLAMA8B, 8030e6),
        (shape_of(7e9, 1, 2048), 7e9),
    ],
)
def test_parameters_are_the_published_ones(shape, published):
    assert shape.parameters == pytest.approx(published, rel=0.05 if shape.vocab == 1 else 0.01)


def test_the_optimal_model_is_chinchilla():
    parameters, tokens = optimal(5.76e23)  # Gopher's budget; Hoffmann et al. 2022, table 3: 67 B and 1.5 T
    assert parameters == pytest.approx(67e9, rel=0.05) and tokens == pytest.approx(1.5e12, rel=0.1)


def test_only_shards_hold_what_a_device_cannot():
    fits = {(way.kind, way.checkpoint): way.fits for way in estimates(MPT["30b"], Fleet(device=H100, gpus=32), 2**20)}
    assert fits["fsdp", True] and not fits["ddp", True] and not fits["hsdp", False]


def test_a_fleet_is_whole_machines():
    with pytest.raises(ConfigError, match="12 GPUs are not whole machines of 8"):
        Fleet(device=H100, gpus=12)
