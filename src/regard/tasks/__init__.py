"""From a Run to a trained model folder: data, tokenizer, model, task, loader and metric, put together in one place.

Each task is a file here, or a few of a kind are; `TASKS` names them.
"""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from regard import run_folder
from regard.config import unknown
from regard.data.folders import Say, to_stderr
from regard.errors import ConfigError
from regard.explain.cost import Memory, parameters_by_part, training_memory
from regard.models import TASK_ARCHS, build
from regard.nn.lora import add_lora_
from regard.tasks import audio, captions, forecast, images, labels, language, masked, series, tables, translate
from regard.tasks.common import Parts
from regard.train.loop import Result, train
from regard.train.run import DATA, DataConfig, Run, read_run

TASKS: dict[str, Any] = {"translate": translate, "lm": language, "summarise": language, "mlm": masked}
TASKS |= {"image": images, "table": tables, "caption": captions, "forecast": forecast, "audio": audio}
TASKS |= labels.KITS | series.KITS
LEAST = 60  # steps of fine-tuning: below, even a few hundred texts teach nothing


def kit(task: str) -> Any:
    if task.lower() not in TASKS:
        raise unknown("task", task, TASKS)
    return TASKS[task.lower()]


def default_run(
    task: str = "translate", arch: str = "", size: str = "", data: DataConfig | None = None, device: str = "cpu"
) -> Run:
    """A good run for this machine; "" takes the preset's architecture and size, a `data.vocab` of 0 its vocabulary."""
    made = kit(task)
    if task.lower() not in TASK_ARCHS:
        way = f"regard finetune smollm2-135m {task} --data FILE.jsonl"
        raise ConfigError(f"to {task}, a model that can write already is fine-tuned; type: {way}")
    data = DATA[task.lower()]() if data is None else data
    return made.default_run(arch.lower() or made.ARCH, size, data, device.split(":")[0])


def settled(run: Run) -> Run:
    """The run with what its model takes from the settings of its data: a vocabulary, or the size of images."""
    if run.start:
        return run
    made, data = kit(run.task), run.data
    follows = made.follows(run) if hasattr(made, "follows") else {"vocab": getattr(data, "vocab", 0)}
    return dataclasses.replace(run, model=dataclasses.replace(run.model, **follows))


def finetune_run(start: Path, task: str, data: DataConfig, device: str = "cpu", lora: int = 0) -> Run:
    """A good run that goes on from the model in the folder `start`, with its tokenizer."""
    if not hasattr(made := kit(task), "finetune_run"):
        able = [name for name, module in TASKS.items() if hasattr(module, "finetune_run")]
        raise ConfigError(f"no model is fine-tuned to {task} yet; there are: {', '.join(able)}")
    return made.finetune_run(task.lower(), start, data, device.split(":")[0], lora)


def assemble(run: Run, device: str = "cpu", say: Say = to_stderr) -> Parts:
    parts = kit(run.task).assemble(run, device, say)
    run = parts.run
    if run.epochs and not run.steps:
        steps = max(1, round(run.epochs * parts.loader.batches_per_epoch / run.accumulate))
        say(f"{run.epochs:g} epochs are {steps:,} steps")
        parts = dataclasses.replace(parts, run=enough(run, steps, say))
    return parts


def enough(run: Run, steps: int, say: Say) -> Run:
    """The run with its steps: fine-tuning on few examples takes `LEAST`, and no warm-up takes more than a quarter."""
    if run.start and steps < LEAST:
        steps = LEAST
        say(f"that is too few to learn by: {steps} are taken (--steps N says how many)")
    warmup = min(run.schedule.warmup, max(1, steps // 4))
    return dataclasses.replace(run, steps=steps, schedule=dataclasses.replace(run.schedule, warmup=warmup))


def train_run(
    run: Run,
    folder: str | Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> Result:
    """Train a run into a new or empty folder, which then holds the finished model.

    `resume` goes on with the very run found there, as it was started; `force` replaces one that is there: the files
    that regard wrote, and no others.
    """
    if not resume:
        run_folder.check_free(folder, force)  # before the data is read; the old run goes only after that
    run = read_run(folder) if resume else run
    parts = assemble(at_home(run, Path(folder)) if resume else run, device, _silent if quiet else to_stderr)
    if parts.run.start != run.start:  # what it began with is told as it was
        parts = dataclasses.replace(parts, run=_from(parts.run, run.start))
    return train(
        parts.run,
        folder,
        model=parts.model,
        objective=parts.objective,
        loader=parts.loader,
        valid_batches=parts.valid_batches,
        metric=parts.metric,
        save_model=parts.save_model,
        flops_per_target=parts.flops_per_target,
        device=device,
        resume=resume,
        force=force,
        quiet=quiet,
    )


def at_home(run: Run, folder: Path) -> Run:
    """The run, going on from its own copy of the model it began with if that is gone: the state has all the weights."""
    gone = run.start and not (Path(run.start) / "config.json").is_file()
    if not gone or not all((folder / name).is_file() for name in ("config.json", "state.safetensors")):
        return run
    return _from(run, str(folder.absolute()))


def _from(run: Run, start: str) -> Run:
    own: Any = {"tokenizer": start} if hasattr(run.data, "tokenizer") else {}
    return dataclasses.replace(run, start=start, data=dataclasses.replace(run.data, **own))


def _silent(_: str) -> None:
    pass


def cost(run: Run) -> tuple[dict[str, int], Memory]:
    """Parameters by part and the memory of a training step, from the settings alone: no data is read."""
    made = kit(run.task)

    def model() -> torch.nn.Module:
        built = build(run.model)
        if run.lora:
            add_lora_(built, run.lora, alpha=2.0 * run.lora)
        return built

    memory = training_memory(
        lambda: (model(), made.example(run)),
        made.make_objective(run).loss_sum,
        momenta=1 if run.optim.name == "muon" else 2,
        bf16=run.precision == "bf16",
    )
    with torch.device("meta"):
        return parameters_by_part(build(run.model)), memory
