"""From a Run to a trained model folder, for any task."""

import dataclasses
import math
import platform
import shutil
from pathlib import Path
from typing import Any

from torch import nn

from regard import checkpoint, run_folder
from regard.checkpoint import load_weights, weights
from regard.data.folders import Say, silent, to_stderr
from regard.errors import ConfigError
from regard.explain.cost import Memory, parameters_by_part, training_memory
from regard.explain.curves import outcome, read_metrics
from regard.jsonfile import write_json
from regard.models.published import load_model, save_weights, to_published, write_adapter
from regard.models.registry import build, check_memory, model_type, outline
from regard.tasks.base import Task
from regard.tasks.plan import check_run, read_run
from regard.tasks.registry import get
from regard.tasks.start import freeze_
from regard.tasks.teach import check_teachers, training_objective
from regard.training.loop import Result, train
from regard.training.parallel import World, join
from regard.training.parts import Parts
from regard.training.progress import has_state, reduce_state
from regard.training.run import Run
from regard.training.signals import Interrupts
from regard.words import count


def assemble(run: Run, device: str = "cpu", say: Say = to_stderr) -> Parts:
    """Read the data, or find it prepared, and build everything else that training needs."""
    check_run(run)
    task = get(run.task)
    task.check(run, device)
    run = check_teachers(task, run)
    data = task.read(run, say)
    run = task.fit(run, data)
    model = task.build(run, data, say).to(device)
    loader = task.loader(run, data, device)
    baselines = task.baselines(run, data)
    for remark in (*task.remarks(run, data, loader), *(f"baseline: {baseline}" for baseline in baselines)):
        say(remark)
    if run.epochs and not run.steps:
        steps = max(1, round(run.epochs * loader.batches_per_epoch / run.accumulate))
        say(f"{count(run.epochs, 'epoch', 'epochs')}: {count(steps, 'step')}")
        run = with_min_steps(run, steps, task.least_steps[device.split(":")[0]], say)
    return Parts(
        run=run,
        model=model,
        objective=training_objective(task, run, data, device),
        loader=loader,
        valid_batches=lambda: (batch.to(device) for batch in task.validation(run, data, device)),
        metric=task.metric(run, data, device),
        save_model=lambda folder, model: write_folder(folder, task, run, model, data),
        baselines=baselines,
        flops_per_target=task.flops_per_target(model, run),
        starts_fitted=getattr(model, "starts_fitted", False),
    )


def with_min_steps(run: Run, steps: int, least: int, say: Say) -> Run:
    """The run with its steps: at least `least` for fine-tuning, of which warm-up takes at most a tenth."""
    if run.start and steps < least:
        steps = least
        say(f"that is too few to learn from: training takes {steps} (--steps N sets the number)")
    return dataclasses.replace(run, steps=steps, schedule=run.schedule.fitted(steps))


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

    `resume` continues the run in the folder with its own settings; `force` replaces it, deleting only files that regard
    wrote. A finished run keeps its optimiser's state only with `run.keep_state`. Processes that torchrun started train
    it together.
    """
    world = join(device)
    with world.together():
        if not resume and world.main:
            run_folder.check_free(folder, force)  # before the data is read; the old run is deleted only after that
        run = read_run(folder) if resume else run
        check_memory(run.model)
    begin = relocate(run, Path(folder)) if resume else run
    return _train(begin, Path(folder), run.start, device, world, quiet, resume=resume, force=force)


def extend_run(
    folder: str | Path,
    *,
    minutes: float = 0.0,
    steps: int = 0,
    epochs: float = 0.0,
    device: str = "cpu",
    quiet: bool = False,
) -> Result:
    """Train a finished run for longer, in its folder.

    Warm-up and schedule start over, the order of the data continues. With `run.keep_state` so do the weights of the
    last step and the optimiser; otherwise it starts from the best model with a new optimiser. Either way the result
    differs from that of a run that was longer from the start.
    """
    folder, world = Path(folder), join(device)
    run, end = read_run(folder), outcome(read_metrics(folder))
    if end is None:
        raise ConfigError(f"{folder} is not finished; first type: regard train --resume {folder}")
    if run.lora and not has_state(folder):
        raise ConfigError(
            f"{folder}: the state of its optimiser was not kept (--set keep_state=true does); "
            f"fine-tune its model instead: regard finetune {folder} {run.task} --lora --data FILE"
        )
    check_memory(run.model)
    measured = {name: value for name, value in end["metrics"].items() if not name.endswith("_per_second")}
    metrics = {name: math.nan if value is None else value for name, value in measured.items()}
    begin = relocate(dataclasses.replace(run, minutes=minutes, steps=steps, epochs=epochs), folder)
    return _train(begin, folder, run.start, device, world, quiet, extend=metrics)


def _train(run: Run, folder: Path, start: str, device: str, world: World, quiet: bool, **how: Any) -> Result:
    parts = world.first(lambda: assemble(run, device, to_stderr if world.main and not quiet else silent))
    versions, data = checkpoint.versions(), parts.loader.state()
    world.check_same({"settings": parts.run.to_dict(), "data": data, "versions of regard or torch": versions})
    if parts.run.start != start:  # the run records the original name of its start
        parts = dataclasses.replace(parts, run=_from(parts.run, start))
    if "extend" in how and not has_state(folder):
        load_weights(parts.model, weights(load_model(folder)), folder)
    with world.together():
        check_disk(folder, parts)
    result = train(parts, folder, device=device, quiet=quiet, world=world, **how)
    if world.main and not parts.run.keep_state:
        reduce_state(folder)
    return result


def check_disk(folder: Path, parts: Parts) -> None:
    """Raise `ConfigError` unless the disk has room for the model, its best weights, and two training states."""
    sizes = [p.numel() * p.element_size() for p in parts.model.parameters()]
    trained = [p.numel() * p.element_size() for p in parts.model.parameters() if p.requires_grad]
    state = sum(sizes) + 2 * sum(trained)
    needed = sum(sizes) * (2 + parts.run.keep) + 2 * state
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    if (free := shutil.disk_usage(place).free) < needed:
        raise ConfigError(
            f"{folder}: training writes up to {needed / 1e6:,.0f} MB, and the disk has {free / 1e6:,.0f} MB left; free "
            "some (regard clean lists what finished runs can do without), or choose a --name on another disk"
        )


def relocate(run: Run, folder: Path) -> Run:
    """The run, starting from its own folder if the original model is gone: the training state has all the weights."""
    gone = run.start and not (Path(run.start) / "config.json").is_file()
    if not gone or not all((folder / name).is_file() for name in ("config.json", "state.safetensors")):
        return run
    return _from(run, str(folder.absolute()))


def _from(run: Run, start: str) -> Run:
    own: Any = {"tokenizer": start} if hasattr(run.data, "tokenizer") else {}
    return dataclasses.replace(run, start=start, data=dataclasses.replace(run.data, **own))


def cost(run: Run) -> tuple[dict[str, int], Memory]:
    """Parameters by part and the memory of a training step, from the settings alone, without reading data."""
    task, parameters = get(run.task), parameters_by_part(outline(run.model))

    def model() -> nn.Module:
        built = build(run.model)
        if run.start:
            freeze_(built, run, task.heads, silent, task.lora_targets)
        return built

    with Interrupts() as stop:  # an exception in a hook, such as Ctrl-C, may abort torch
        memory = training_memory(
            lambda: (model(), task.example(run)),
            training_objective(task, run).loss_sum,
            momenta=1 if run.optim.name == "muon" else 2,
            bf16=run.precision != "fp32",
        )
    if stop.signal:
        raise stop.exit()
    return parameters, memory


# -- the model folder ---------------------------------------------------------------------------------------------


def write_folder(folder: Path, task: Task, run: Run, model: Any, data: Any) -> None:
    """Write a Hugging Face model folder: a draft, whose files the loop moves into place when all are there."""
    generation, template = task.generation(run, data), task.template(run, data)
    ends, calibration = generation.get("eos_token_id"), task.calibration(run, model, data)
    about = {
        "format_version": checkpoint.FORMAT_VERSION,
        "task": run.task,
        "seed": run.seed,
        "versions": checkpoint.versions() | {"python": platform.python_version()},
        "data": task.about(run, data),
        **({"template": template} if template else {}),
        **({"calibration": calibration} if calibration else {}),
    }
    for name, value in (
        ("config.json", to_published(run.model, ends[0] if isinstance(ends, list) else ends)),
        ("generation_config.json", generation),
        ("regard.json", about),
    ):
        if value:  # an encoder generates nothing
            write_json(folder / name, value)
    card = model_card(task, run, model, bool(template))
    (folder / "README.md").write_text(card, encoding="utf-8", errors="backslashreplace")  # names may not be UTF-8
    task.write_files(folder, run, data)
    if run.lora and not run.merge:
        write_adapter(folder, model, Path(run.start))
    else:
        save_weights(model, folder)


def model_card(task: Task, run: Run, model: nn.Module, answers: bool) -> str:
    number = sum(parameters_by_part(outline(run.model)).values())  # as written, with LoRA merged
    data = task.named(run.data)
    use = (task.answering if answers and task.answering else task.card.use).format("THIS_FOLDER")
    return f"""---
library_name: regard
pipeline_tag: {task.card.pipeline}
---

# {task.card.title} trained with regard

{type(model).__name__} ({model_type(run.model)}), {number:,} parameters, trained on {data} with seed {run.seed}.
All settings are in `run.json`, the curves in `metrics.jsonl`.

    regard {use}
    regard info THIS_FOLDER
"""
