"""What no command line may do, whatever is typed."""

import re
from collections.abc import Iterable

from tests.fuzz.lines import Lines
from tests.fuzz.world import Case, Outcome, World

CODES = (0, 1, 2, 3)
INTERRUPTED = 130
NEVER = {
    "a traceback": "Traceback (most recent call last)",
    "an unforeseen error": "this should not happen",
    "an error in a destructor or thread": "Exception ignored in",
    "an error in a thread": "Exception in thread",
    "an error of the system, not in words": "[Errno ",
    "a panic": "panicked at",
}
MEMORY = re.compile(
    r"not enough memory|out of memory|can't allocate|Unable to allocate|MemoryError|bad_alloc", re.IGNORECASE
)
STEP = re.compile(r"^step \d+/", re.MULTILINE)


def findings(case: Case, outcome: Outcome, changed: list[str]) -> list[str]:
    """What is wrong with the outcome of a case, in words; nothing is well."""
    wrong = []
    if outcome.late:
        if not STEP.search(outcome.err):  # else it trains for the minutes that were requested
            wrong.append(f"a hang: {outcome.seconds:.0f} s of computing")
    elif outcome.code not in CODES and not (case.interrupt and outcome.code == INTERRUPTED):
        wrong.append(f"exit code {outcome.code}")
    message = (
        outcome.err[outcome.err.rfind("\nregard: ") + 1 :] if "-v" in case.args else outcome.err
    )  # -v shows the traceback
    wrong += [what for what, sign in NEVER.items() if sign in message]
    if MEMORY.search(outcome.err):
        wrong.append("out of memory")
    if outcome.code not in (0, INTERRUPTED) and not outcome.err.strip():
        wrong.append("no message")
    return wrong + [f"changed {path}" for path in changed]


def failures(world: World, seed: int, numbers: Iterable[int]) -> list[str]:
    """Try these cases of a seed: what went wrong, and in which (again: `python -m tests.fuzz SEED 1 NUMBER`)."""
    lines, problems = Lines(world.work, seed), []
    for number in numbers:
        case = lines.case(number)
        outcome, changed = world.run(case)
        if wrong := findings(case, outcome, changed):
            problems.append(f"{seed}/{number}: {'; '.join(wrong)}\n   {str(case)[:700]}\n   {outcome.err[-600:]}")
    return problems
