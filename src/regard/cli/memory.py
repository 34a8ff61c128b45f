"""The message when memory runs out: what was being done, how much it requested, and what to type instead."""

import re
import traceback

from regard.limits import exhausted_memory

SMALLER = "make batches smaller with --set tokens=1024 or --set batch=16, or the model with --size tiny"
WORK = {  # by the innermost package of the traceback: what was being done, and what helps
    "data": ("reading the data", "give it less at a time, or in several files"),
    "models": ("loading the model", "choose a smaller one"),
    "generate": ("writing text", "lower --max-tokens, --n or --beam"),
    "predictors": ("computing the answers", "lower --batch, or shorten the texts"),
    "metrics": ("scoring", "score on less"),
    "explain": ("looking inside", "shorten the text"),
    "inside": ("looking inside", "shorten the text"),
    "training": ("a training step", SMALLER),
    "tasks": ("preparing the run", SMALLER),
}
AMOUNT = re.compile(r"allocate ([\d.]+ ([KMGTPE]iB|bytes))", re.IGNORECASE)  # only the text has it


def memory_message(e: BaseException) -> str:
    """The message if `e` says that the machine or a GPU ran out of memory; else ""."""
    whose = exhausted_memory(e)
    if not whose:
        return ""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(e.__traceback__)]
    ours = [name.split(".")[1] for name in modules if name.startswith("regard.")]
    doing, remedy = next((WORK[part] for part in reversed(ours) if part in WORK), ("this", SMALLER))
    amount = AMOUNT.search(str(e))
    where = "the GPU has" if whose == "GPU" else "there is"
    return f"{where} not enough memory for {doing}{f' (it requested {amount[1]} more)' if amount else ''}; {remedy}"
