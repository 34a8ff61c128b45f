"""`regard gradients`: measure how far back networks can learn from."""

import dataclasses
from typing import Annotated

import typer

from regard.cli.common import SEED, Json, flag, option, pick_device, show_line
from regard.config import unknown
from regard.errors import ConfigError, MissingExtra
from regard.ticks import Console


def gradients(
    ctx: typer.Context,
    arch: Annotated[
        str, option("NAME", "rnn, gru, lstm, gpt, llama, mlp, conv3, conv9; several by comma.", default=True)
    ] = "rnn,gru,lstm,gpt",
    length: Annotated[int, option("N", "The farthest distance.", default=True, min=10, max=1000)] = 200,
    memory: Annotated[
        bool, flag("--memory", "Also train tiny models to recall a symbol, 5 to 1,000 tokens later.")
    ] = False,
    speed: Annotated[bool, flag("--speed", "Also time a step of each, for sequences of 64 to 2,048 tokens.")] = False,
    out: Annotated[str, option("FILE", "Draw a picture: .png, .svg or .pdf.")] = "",
    seed: Annotated[int, typer.Option(**SEED, help="Seed of the networks and inputs.")] = 0,
    device: Annotated[
        str, option("NAME", "For --memory and --speed: auto, cpu, cuda or cuda:N.", default=True)
    ] = "cpu",
    json: Json = False,
) -> None:
    """Why recurrent networks forget: gradient against distance, and what each remedy does to it.

    Untrained networks on random input: how strongly does the last state depend on the input k steps before?
    Takes half a minute; --memory adds about two minutes, --speed some seconds.

    \b
    Examples:
      regard gradients --arch rnn,lstm,gpt --length 200
      regard gradients --out gradients.png
      regard gradients --memory --speed --out all.svg
      regard gradients --arch mlp,conv3,conv9,lstm,gpt --memory --out limits.png
    """
    from regard.lab.plain_text import PLAIN
    from regard.tasks.registry import get

    flags: Console = ctx.obj
    archs = list(dict.fromkeys(a.strip().lower() for a in arch.split(",") if a.strip()))
    if not archs:
        raise ConfigError("--arch is empty; for example: --arch rnn,lstm,gpt")
    for name in archs:
        if name not in (choices := [*get("lm").archs, *PLAIN]):
            raise unknown("architecture", name, choices)
    out, device = usable_picture(out, flags), pick_device(device)

    from regard.lab.gradients import NETWORKS, WIDTH
    from regard.lab.report import measure, sections

    measured = measure(archs, length, seed, device, memory, speed, flags.say)
    parts = sections(measured, device)
    if json:
        show_line({"seed": seed, **dataclasses.asdict(measured), "findings": [finding for _, finding in parts]})
    else:
        print("Gradient of the last state by the input k steps before, relative to k = 1.")
        print(f"Medians of {NETWORKS} untrained networks of width {WIDTH}, in float64, seed {seed};")
        print("'per step' is the factor that fits from k = 1 on (mean ± standard deviation).")
        for table, finding in parts:
            print(f"\n{table}\n{finding}")
    if out:
        from regard.lab.figure import draw

        flags.say(f"picture: {draw(measured, out)}")


def usable_picture(out: str, flags: Console) -> str:
    """`out`, or "" if matplotlib is not installed: the tables hold the same numbers."""
    if out:
        from regard.explain.picture import check_picture

        try:
            check_picture(out)
        except MissingExtra as e:
            flags.say(f"no picture: {e}")
            return ""
    return out
