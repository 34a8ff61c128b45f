"""`regard evaluate` for BERT: how many of the hidden words it finds."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.common import show
from regard.cli.info import note
from regard.errors import ConfigError
from regard.ticks import Console
from regard.words import table

if TYPE_CHECKING:
    from regard.predictors import Filler

TOKENS = 4096  # of a batch


def evaluate_masked(model: "Filler", run: str, data: str, json: bool, flags: Console) -> None:
    """Loss and accuracy on hidden words and next sentences: the same words hidden each time."""
    from regard.data.loader import in_order
    from regard.data.masked import MaskedConfig, prepare_masked, read_sentences
    from regard.data.masking import MaskedRows
    from regard.objectives.masked_token import MaskedToken
    from regard.tasks.mlm import make_rules
    from regard.tasks.plan import read_run

    config, bert = MaskedConfig(), model.model
    if trained := (Path(run) / "run.json").is_file():
        config = read_run(run).data
        assert isinstance(config, MaskedConfig), "BERT was trained on documents"
    elif not data:
        raise ConfigError(f"{run} has no text of its own; type: regard evaluate {run} --data FILE")
    longest = min(config.max_length, bert.config.max_length)
    pairs = config.next_sentence and bert.config.head == "pretraining"
    config = dataclasses.replace(config, max_length=longest, next_sentence=pairs)
    entropy = 0.0
    if data:
        what, text = data, read_sentences(data, model.tokenizer, config)
    else:
        assert trained
        prepared = prepare_masked(config, lambda _: None)
        what, text, entropy = "its own held-out text", prepared.valid, prepared.entropy
    flags.say(f"reading {len(text.ids):,} tokens of {what}")
    source = MaskedRows(text, make_rules(config, model.tokenizer), max(TOKENS, longest))
    batches = in_order(source, source.plan)
    found = MaskedToken(entropy=entropy).held_out(bert, (batch.to(model.device) for batch in batches))
    note(Path(run), {"on": what, **found})
    if json:
        show({"run": run, "on": what, **found})
        return
    print(f"{run} on {what}, {config.masked:.0%} of the tokens hidden")
    print(table([(name.replace("_", " "), f"{value:.4f}") for name, value in found.items()], right=[1]))
