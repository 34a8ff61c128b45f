"""Writing one text at a time on a CPU, with and without guesses of what repeats: SmolLM2-135M, ten requests.

python bench/guessing.py            # fp32; fetches the model (93 MB) the first time
python bench/guessing.py fp16

Both take turns in one process. Every request is answered greedily and by sampling (temperature 0.8, top-p 0.95).
"""

import sys
from typing import Any

import torch
from _common import report, seconds

import regard
from regard.data.records import render
from regard.generate.guessing import GuessingRows
from regard.generate.request import Sampling

NEW, ROUNDS = 160, 3
PASSAGE = (
    "The lighthouse on the northern cape was built in 1871 after three ships were lost in a single winter. Its keeper, "
    "Anna Holm, recorded the weather every three hours for forty years. When the light was automated in 1963, the "
    "records were moved to the town library, where students still use them to study storms along the coast."
)
REQUESTS = [
    f"Summarise the following text in two sentences:\n{PASSAGE}",
    f"Correct the spelling and repeat the text: {PASSAGE.replace('weather', 'wether').replace('library', 'libary')}",
    "Write a short story about a fox and a bear who become friends.",
    "Explain how a bicycle stays upright.",
    "Write a Python function that returns the n-th Fibonacci number, then explain it.",
    "List ten capital cities in Europe with their countries.",
    "What is a Transformer in machine learning?",
    "Write an email to my landlord asking to repair the heating.",
    "Give me a recipe for pancakes.",
    "Translate to French: The cat sleeps on the sofa.",
]
HOW = {
    "greedy": Sampling(max_tokens=NEW, temperature=0.0),
    "sampled": Sampling(max_tokens=NEW, temperature=0.8, top_p=0.95, seed=1),
}


def main(weights: str = "fp32") -> None:
    model: Any = regard.load("smollm2-135m", weights=weights)
    prompts = [model.encode(render([{"role": "user", "content": r}], model.tokenizer, True), True) for r in REQUESTS]
    takes, written = GuessingRows.takes, {}

    def write(name: str, prompt: list[int], settings: Sampling) -> None:
        GuessingRows.takes = staticmethod(takes if name == "guesses" else lambda *_: False)
        written[name] = model.engine.generate([prompt], settings)[0][0].ids

    print(f"{'':44}{'greedy':>10}{'sampled':>10}   times as fast as without guesses")
    totals, words, same = {how: dict(guesses=0.0, plain=0.0) for how in HOW}, dict.fromkeys(HOW, 0), 0
    for request, prompt in zip(REQUESTS, prompts, strict=True):
        row = ""
        for how, settings in HOW.items():
            times: dict[str, list[float]] = {"guesses": [], "plain": []}
            for _ in range(ROUNDS):
                for side, spent in times.items():
                    spent += seconds(lambda side=side: write(side, prompt, settings), 1, 0)  # noqa: B023
            same += written["guesses"] == written["plain"]
            words[how] += len(written["plain"])
            for side, spent in times.items():
                totals[how][side] += min(spent)
            row += f"{min(times['plain']) / min(times['guesses']):>10.2f}"
        print(f"{request[:42]:44}{row}", flush=True)
    print(f"{same} of {len(HOW) * len(REQUESTS)} texts are the same")
    for how, spent in totals.items():
        name = f"guesses-smollm2-{weights}-{how}-{torch.get_num_threads()}threads"
        report(name, "cpu", "tokens/s", words[how], **{side: [total] for side, total in spent.items()})


if __name__ == "__main__":
    main(*sys.argv[1:2])
