"""`regard plan`: estimate what training a language model on many GPUs takes, before anything is rented."""

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from regard.cli.common import Json, flag, option, show
from regard.errors import ConfigError
from regard.words import count, table

if TYPE_CHECKING:
    from regard.explain.fleet import Device, Estimate, Fleet, Shape

UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
SIMPLER = 0.97  # of the highest speed is enough for a simpler layout
SLOWEST_SAVE = 1e9  # bytes a second that a machine writes to a shared file system


def plan(
    arch: Annotated[str, option("NAME", "gpt or llama.", default=True)] = "gpt",
    size: Annotated[str, option("NAME", "A size of the architecture; regard train lm --help lists them.")] = "",
    params: Annotated[str, option("N", "Instead: about N parameters, such as 7B.")] = "",
    tokens: Annotated[str, option("N", "Tokens to train on, such as 300B.", default="20 per parameter")] = "",
    context: Annotated[int, option("N", "Tokens per sequence.", default=True, min=1)] = 1024,
    vocab: Annotated[int, option("N", "Size of the vocabulary.", default=True, min=1)] = 50304,
    batch: Annotated[str, option("N", "Tokens per step.", default=True)] = "512K",
    gpus: Annotated[int, option("N", "GPUs in all.", default=True, min=1)] = 8,
    gpu: Annotated[str, option("NAME", "a100, h100, h200 or b200.", default=True)] = "h200",
    per_node: Annotated[int, option("N", "GPUs per machine.", default=True, min=1)] = 8,
    network: Annotated[
        str, option("RATE", "Bandwidth between machines per GPU, such as 400Gb (a second).", default=True)
    ] = "400Gb",
    measure: Annotated[
        bool, flag("--measure", "Measure this machine's rates and plan with them, not with --gpu's.")
    ] = False,
    out: Annotated[str, option("FILE", "A picture of speed and efficiency against GPUs: .png, .svg or .pdf.")] = "",
    json: Json = False,
) -> None:
    """Estimate what training a language model takes: memory, speed, days, and the commands to type.

    Computed from data sheets, within about 20 % of published figures; docs/scale.md has the comparison.

    \b
    Examples:
      regard plan --size xl --tokens 30B --gpus 8
      regard plan --params 7B --tokens 140B --gpus 64 --gpu h100 --context 4096 --batch 4M
      regard plan --size gpt2 --gpus 1 --measure --out plan.png
    """
    from regard.config import unknown
    from regard.explain.fleet import DEVICES, Fleet, estimates

    if gpu.lower() not in DEVICES:
        raise unknown("GPU", gpu, DEVICES)
    shape = find_shape(arch, size, params, vocab, context)
    device, step, network_rate = DEVICES[gpu.lower()], quantity("--batch", batch), bytes_per_second(network)
    fleet = Fleet(device=device, gpus=gpus, per_node=per_node, network=network_rate)
    budget = quantity("--tokens", tokens) if tokens else 20 * shape.parameters
    if out:
        from regard.explain.picture import check_picture

        check_picture(out)
    if measure:
        gpu, fleet = "this machine", replace(fleet, device=measured(json))
    ways = list(estimates(shape, fleet, step))
    best = choose(ways)
    if out:
        draw(out, shape, fleet, step, gpu)
    if json:
        show(as_json(shape, ways, best, budget, gpus))
        return
    print(as_text(shape, fleet, gpu.lower(), ways, best, budget))
    if best:
        model = f"--arch {arch} --size {size.removeprefix('gpt2-')}" if size else model_settings(shape)
        print("\ntype:\n" + lines_to_type(f"train lm {model} --data corpus/", fleet, best, shape, budget))


def choose(ways: "list[Estimate]") -> "Estimate | None":
    """The simplest layout that fits, unless another is clearly faster."""
    fastest = max((way.tokens_per_second for way in ways if way.fits), default=0.0)
    return next((way for way in ways if way.fits and way.tokens_per_second > SIMPLER * fastest), None)


def measured(quiet: bool) -> "Device":
    from regard.explain.ceilings import measure

    device = measure()
    if not quiet:
        products, memory = device.sustained / 1e12, device.memory_rate / 1e9
        print(f"measured here: {products:,.2f} TFLOP/s in training's products, memory of {memory:,.0f} GB/s as sold\n")
    return device


def draw(path: str, shape: "Shape", fleet: "Fleet", batch: float, gpu: str) -> None:
    """Draw tokens per second, and each GPU's speed relative to one alone, for fleets of up to twice the size."""
    from regard.explain.fleet import estimates
    from regard.explain.picture import COLOURS, figure, save

    sizes = [
        n for n in (2**k for k in range(12)) if n <= 2 * fleet.gpus and (n <= fleet.machine or n % fleet.machine == 0)
    ]
    each = {n: choose(list(estimates(shape, replace(fleet, gpus=n), batch))) for n in sizes}
    rates = {n: way.tokens_per_second for n, way in each.items() if way}
    if not rates:
        raise ConfigError(f"{path}: no fleet of up to {2 * fleet.gpus} GPUs holds the model; take more, or larger ones")
    fig = figure(7, 3)
    speed, efficiency = fig.subplots(1, 2)
    first = min(rates)
    speed.loglog(list(rates), list(rates.values()), "o-", base=2, color=COLOURS[0])
    speed.set_ylabel("tokens/s")
    shares = [100 * rate / n / (rates[first] / first) for n, rate in rates.items()]
    efficiency.semilogx(list(rates), shares, "o-", base=2, color=COLOURS[1])
    efficiency.set_ylim(0, 105)
    efficiency.set_ylabel(f"% of the speed of {count(first, 'GPU')}, for each")
    for axes in (speed, efficiency):
        axes.set_xlabel(f"GPUs ({gpu}), steps of {batch:,.0f} tokens")
        axes.set_xticks(list(rates), [str(n) for n in rates])
        axes.grid(alpha=0.3)
    fig.suptitle(f"{shape.parameters / 1e9:.2f} B parameters, planned")
    save(fig, path)


def quantity(name: str, text: str) -> float:
    """7B is 7e9."""
    if not (match := re.fullmatch(r"([\d.]+)([KMBT]?)", text.strip().upper())) or match[1].count(".") > 1:
        raise ConfigError(f"{name} {text!r}: expected a number, such as 512K, 7B or 1.5T")
    number = float(match[1]) * UNITS[match[2]]
    if number < 1:
        raise ConfigError(f"{name} {text!r}: must be at least 1")
    return number


def bytes_per_second(text: str) -> float:
    if not (match := re.fullmatch(r"(\d+(?:\.\d+)?) ?gb(?:ps|/s|it/s)?", text.strip().lower())) or not float(match[1]):
        raise ConfigError(f"--network {text!r}: expected a rate in gigabits a second, such as 400Gb")
    return float(match[1]) * 1e9 / 8


def find_shape(arch: str, size: str, params: str, vocab: int, context: int) -> "Shape":
    from regard.config import unknown
    from regard.explain.fleet import Shape, shape_of
    from regard.models.sizes import SIZES

    if bool(size) == bool(params):
        raise ConfigError("plan what? type --size xl, or --params 7B")
    if params:
        return shape_of(quantity("--params", params), vocab, context)
    if arch not in ("gpt", "llama"):
        raise unknown("architecture", arch, ("gpt", "llama"))
    name = size.removeprefix("gpt2-") if size != "gpt2" else size
    if name not in SIZES[arch]:
        raise unknown("size", name, SIZES[arch])
    from regard.models.registry import MODELS

    c: Any = MODELS[arch][0](vocab=vocab, **SIZES[arch][name])
    share = c.kv_heads / c.heads if arch == "llama" else 1.0
    gated = arch == "llama"
    dims = dict(layers=c.layers, width=c.width, ffn=c.ffn, vocab=vocab, context=context)
    return Shape(**dims, gated=gated, kv_share=share, tied=not gated or c.tied)


def as_text(
    shape: "Shape", fleet: "Fleet", gpu: str, ways: "list[Estimate]", best: "Estimate | None", budget: float
) -> str:
    from regard.explain.fleet import GIB, ROOM, optimal

    head = ("", "layout", "micro-batch", "states", "gradients", "activations", "most", "tokens/s", "of peak", "days")
    rows: list[tuple[str, ...]] = [head]
    for way in ways:
        name = way.kind + " + checkpoint" * way.checkpoint
        batch = f"{way.accumulate} x {way.tokens // shape.context} x {shape.context}"
        memory = way.memory
        sizes = [f"{size / GIB:.1f} GiB" for size in (memory.states, memory.gradients, memory.activations, memory.most)]
        speed = (
            (f"{way.tokens_per_second:,.0f}", f"{way.mfu:.0%}", f"{days(budget, way):,.1f}") if way.fits else ("",) * 3
        )
        mark = "->" if way is best else "" if way.fits else "too large"
        rows.append((mark, name, batch, *sizes, *speed))
    room = ROOM * fleet.device.memory / GIB
    weights, examples = optimal(shape.flops * budget)
    text = [
        f"{shape.parameters / 1e9:.2f} B parameters, {budget / 1e9:,.1f} B tokens, {shape.flops * budget:.1e} FLOPs, "
        f"on {count(fleet.gpus, 'GPU')} ({gpu}, {room:.0f} GiB of each are for training)",
        "",
        table(rows, right=range(3, 10)),
        "",
        f"for these FLOPs {weights / 1e9:.2f} B parameters and {examples / 1e9:,.0f} B tokens would be optimal "
        "(Hoffmann et al. 2022)",
    ]
    if best is None:
        return "\n".join([*text, "no layout fits: take more GPUs, larger ones, or a shorter --context"])
    saved = 12 * shape.parameters
    seconds = saved / (fleet.gpus // fleet.machine) / SLOWEST_SAVE
    hours = days(budget, best) * 24 * fleet.gpus
    text.append(
        f"{hours:,.0f} GPU-hours; a saved state is {saved / 1e9:,.0f} GB, about {seconds:,.0f} s at 1 GB/s a machine"
    )
    return "\n".join(text)


def model_settings(shape: "Shape") -> str:
    sizes = dict(width=shape.width, layers=shape.layers, heads=shape.width // 128, ffn=shape.ffn)
    return "--arch gpt --size xl " + " ".join(f"--set model.{name}={value}" for name, value in sizes.items())


def days(budget: float, way: "Estimate") -> float:
    return budget / way.tokens_per_second / 86400


def lines_to_type(command: str, fleet: "Fleet", way: "Estimate", shape: "Shape", budget: float) -> str:
    nodes, accumulate = fleet.gpus // fleet.machine, way.accumulate * fleet.gpus
    settings = {"tokens": way.tokens, "accumulate": accumulate, "model.context": shape.context,
                "data.vocab": shape.vocab, "parallel.kind": way.kind, "precision": "bf16"}  # fmt: skip
    settings |= {"parallel.checkpoint": "true"} if way.checkpoint else {}
    words = " ".join(f"--set {name}={value}" for name, value in settings.items())
    steps = math.ceil(budget / (way.tokens * accumulate))
    run = f"-m regard {command} {words} --steps {steps} --name big"
    if nodes == 1:
        return f"  torchrun --standalone --nproc-per-node {fleet.gpus} --max-restarts 3 {run}"
    meet = "--rdzv-backend c10d --rdzv-endpoint $HEAD:29500 --rdzv-id $SLURM_JOB_ID"
    return "\n".join(
        [
            "  #!/bin/bash",
            f"  #SBATCH --nodes={nodes} --ntasks-per-node=1 --gpus-per-node={fleet.machine} --signal=TERM@120",
            "  HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)",
            f"  srun torchrun --nnodes {nodes} --nproc-per-node {fleet.machine} --max-restarts 3 {meet} \\",
            f"      {run}",
        ]
    )


def as_json(
    shape: "Shape", ways: "list[Estimate]", best: "Estimate | None", budget: float, gpus: int
) -> dict[str, Any]:
    return {
        "parameters": shape.parameters,
        "tokens": budget,
        "flops": shape.flops * budget,
        "gpus": gpus,
        "layouts": [
            vars(way)
            | {"memory": vars(way.memory) | {"most": way.memory.most}, "days": days(budget, way), "best": way is best}
            for way in ways
        ],
    }
