"""What to say when memory runs out: which work asked for it, how much, and what to type instead."""

import re
import traceback

SMALLER = "make batches smaller with --set tokens=1024 or --set batch=16, or the model with --size tiny"
WORK = {  # by package, the innermost that a failure went through: what it was doing, and what helps
    "data": ("reading the data", "give it less at a time, or in several files"),
    "models": ("loading the model", "choose a smaller one"),
    "generate": ("writing text", "lower --max-tokens, --n or --beam"),
    "predictors": ("computing the answers", "lower --batch, or shorten the texts"),
    "evaluate": ("scoring", "score on less"),
    "explain": ("looking inside", "shorten the text"),
    "inside": ("looking inside", "shorten the text"),
    "train": ("a training step", SMALLER),
    "tasks": ("preparing the run", SMALLER),
}
AMOUNTS = (r"allocate ([\d.]+ [KMGT]iB)", r"tried to allocate (\d+ bytes)")  # as numpy and torch put it
SIGNS = ("can't allocate memory", "out of memory")


def memory_message(e: BaseException) -> str:
    """The sentence, where `e` tells that memory ran out, of the machine or of a GPU; else nothing."""
    text = str(e)
    if not isinstance(e, MemoryError) and not any(sign in text for sign in SIGNS):
        return ""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(e.__traceback__)]
    ours = [name.split(".")[1] for name in modules if name.startswith("regard.")]
    doing, remedy = next((WORK[part] for part in reversed(ours) if part in WORK), ("this", SMALLER))
    amount = next((match for pattern in AMOUNTS if (match := re.search(pattern, text, re.IGNORECASE))), None)
    where = "the GPU has" if "CUDA" in text else "there is"
    return f"{where} not enough memory for {doing}{f' (it asked for {amount[1]} more)' if amount else ''}; {remedy}"
