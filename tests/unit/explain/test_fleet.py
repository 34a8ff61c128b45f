"""The plan of a fleet, compared with throughput that was measured or published, and with published model sizes."""

from dataclasses import replace

import pytest

from regard.errors import ConfigError
from regard.explain.fleet import DEVICES, GIB, Fleet, Shape, estimate, estimates, optimal, shape_of

A100, H100, H200 = (DEVICES[name] for name in ("a100", "h100", "h200"))
TITAN = replace(H100, memory=96e9, memory_rate=2.4e12)  # the GPUs that torchtitan's team measured on
LLAMA8B = Shape(
    layers=32, width=4096, ffn=14336, vocab=128256, context=8192, gated=True, kv_share=0.25, tied=False
)  # Llama 3.1


def mpt(layers: int, width: int) -> Shape:
    return Shape(layers=layers, width=width, ffn=4 * width, vocab=50432, context=2048)


def llama(layers: int, width: int, ffn: int, vocab: int = 32000, kv_share: float = 1.0, context: int = 4096) -> Shape:
    return Shape(layers=layers, width=width, ffn=ffn, vocab=vocab, context=context, gated=True, kv_share=kv_share,
                 tied=False)  # fmt: skip


def gpt2(layers: int, width: int) -> Shape:
    return Shape(layers=layers, width=width, ffn=4 * width, vocab=50304, context=1024)


GPT2, LLAMA7B = gpt2(12, 768), llama(32, 4096, 11008)
MPT = {"760m": mpt(24, 1536), "1b": mpt(24, 2048), "3b": mpt(32, 2560), "7b": mpt(32, 4096), "13b": mpt(40, 5120),
       "30b": mpt(48, 7168), "70b": mpt(80, 8192)}  # fmt: skip
IBM = 50e9 / 8  # bytes a second of each GPU where a machine has 400 Gb/s
# shape, layout, fleet, texts of a micro-batch, micro-batches, checkpointing, tokens a second and GPU
PUBLISHED = {
    "llm-foundry 760m": (MPT["760m"], "fsdp", Fleet(device=H100, gpus=32), 24, 1, False, 67_971),
    "llm-foundry 1b": (MPT["1b"], "fsdp", Fleet(device=H100, gpus=64), 20, 1, False, 44_402),
    "llm-foundry 3b": (MPT["3b"], "fsdp", Fleet(device=H100, gpus=64), 6, 3, False, 22_525),
    "llm-foundry 7b": (MPT["7b"], "fsdp", Fleet(device=H100, gpus=8), 6, 1, False, 10_643),
    "llm-foundry 13b": (MPT["13b"], "fsdp", Fleet(device=H100, gpus=64), 2, 1, False, 4_800),
    "llm-foundry 30b": (MPT["30b"], "fsdp", Fleet(device=H100, gpus=32), 14, 3, True, 2_308),
    "llm-foundry 70b": (MPT["70b"], "fsdp", Fleet(device=H100, gpus=64), 8, 4, True, 1_039),
    "torchtitan 8b, 8": (LLAMA8B, "fsdp", Fleet(device=TITAN, gpus=8), 2, 1, False, 6_667),
    "torchtitan 8b, 128": (LLAMA8B, "fsdp", Fleet(device=TITAN, gpus=128), 2, 1, False, 6_514),
    "torchtitan 70b, 64": (
        llama(80, 8192, 28672, 128256, 1 / 8, 8192), "fsdp", Fleet(device=A100, gpus=64), 1, 1, True, 331,
    ),
    "olmo-core 1b": (llama(16, 2048, 8192, 100352), "fsdp", Fleet(device=H100, gpus=64), 4, 1, False, 44_000),
    "olmo-core 7b": (llama(32, 4096, 11008, 100352), "fsdp", Fleet(device=H100, gpus=64), 2, 1, False, 10_000),
    "olmo-core 13b": (llama(40, 5120, 13824, 100352), "fsdp", Fleet(device=H100, gpus=64), 2, 1, False, 4_600),
    "fms-fsdp 7b": (LLAMA7B, "hsdp", Fleet(device=A100, gpus=128, network=IBM), 2, 1, False, 3_760),
    "fms-fsdp 13b": (llama(40, 5120, 13824), "hsdp", Fleet(device=A100, gpus=128, network=IBM), 1, 1, False, 1_700),
    "fms-fsdp 70b": (
        llama(80, 8192, 28672, kv_share=1 / 8), "fsdp", Fleet(device=A100, gpus=128, network=IBM), 6, 1, True, 380,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_speed_is_within_a_fifth_of_what_was_published(name):
    shape, kind, fleet, rows, accumulate, checkpoint, published = PUBLISHED[name]
    way = estimate(shape, fleet, kind, checkpoint, rows * accumulate * fleet.gpus * shape.context, rows)
    assert way.accumulate == accumulate
    assert way.tokens_per_second / fleet.gpus == pytest.approx(published, rel=0.2)


# on one H200, by bench/scale.py: shape, texts of a micro-batch, checkpointing, tokens a second, GiB
MEASURED = {
    "124M": (GPT2, 64, False, 569_303, 21.80),
    "124M, checkpointing": (GPT2, 64, True, 458_974, 6.29),
    "350M": (gpt2(24, 1024), 64, False, 212_442, 56.60),
    "774M": (gpt2(36, 1280), 32, False, 98_115, 59.12),
    "1.5B": (gpt2(48, 1600), 24, False, 50_163, 80.41),
    "7B": (LLAMA7B, 8, True, 10_150, 105.81),
}


@pytest.mark.parametrize("name", MEASURED)
def test_speed_and_memory_are_those_measured(name):
    shape, rows, checkpoint, speed, memory = MEASURED[name]
    way = estimate(shape, Fleet(device=H200, gpus=1), "ddp", checkpoint, rows * shape.context, rows)
    assert way.tokens_per_second == pytest.approx(speed, rel=0.15)
    assert way.memory.most / GIB == pytest.approx(memory, rel=0.1)


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
