"""Beam search compared with transformers' generate, same weights, same sentences.

python bench/beam.py                                          # base, beam 4, batch 64, 32 tokens (a GPU)
python bench/beam.py runs/mine test.en                        # a trained model and real sentences, end to end
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _common import pair, report, seconds

from regard.generate.search import Search, Shelf, beam_search

BEAMS, ROWS, LENGTH = 4, 64, 32
BATCH = 128


def contenders(device: str) -> tuple[int, dict[str, Callable[[], Callable[[], Any]]]]:
    """The number of words, and by name what makes the search. All sentences are forced to the same length, so that only
    the cost of a step counts."""
    vocab, rows = 32000, ROWS if device == "cuda" else 16
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    source = torch.randint(2, vocab - 1, (rows, LENGTH), device=device)
    source[:, -1] = 0

    def regard():
        model = pair("base", vocab)[0].to(device, dtype).eval()
        search = Search(beams=BEAMS, min_length=LENGTH, eos=0, pad=vocab - 1)
        limits = torch.full((rows,), LENGTH, device=device)
        shelf: Shelf = {}
        return lambda: beam_search(model, source, None, limits, search, look_every=8, shelf=shelf)

    def transformers():
        model: Any = pair("base", vocab)[1].to(device, dtype).eval()
        how = dict(num_beams=BEAMS, max_new_tokens=LENGTH, min_new_tokens=LENGTH)
        return lambda: model.generate(source, attention_mask=torch.ones_like(source), **how)

    return rows * LENGTH, {"regard": regard, "transformers": transformers}


def translators(folder: str, file: str, threads: int) -> dict[str, Callable[[], tuple[Callable[[], Any], int]]]:
    """By name what makes a translator of a file, beam 5, and the number of its sentences; text to text on a CPU."""
    texts = sorted(Path(file).read_text(encoding="utf-8").splitlines(), key=len)

    def regard(weights: str = "fp32"):
        from regard.tasks.load import load

        torch.set_num_threads(threads)
        ours = load(folder, weights=weights)
        return lambda: ours.translate(texts, beam=5), len(texts)

    def ctranslate2(kind: str = "float32"):
        """With all threads for one batch or each for its own, in smaller or larger batches: whichever is fastest."""
        from ctranslate2 import Translator
        from ctranslate2.converters import TransformersConverter

        from regard.tasks.load import load

        tokenizer = load(folder).tokenizer
        words = tokenizer.pieces
        place = {word: i for i, word in enumerate(words)}
        with tempfile.TemporaryDirectory() as made:
            TransformersConverter(folder).convert(f"{made}/ct2", quantization=kind)
            make = partial(Translator, f"{made}/ct2", compute_type=kind)
            models = [make(intra_threads=threads // n, inter_threads=n) for n in (1, threads)]

        def work(model: Any, batch: int) -> list[str]:
            pieces = [[*(words[i] for i in ids), words[tokenizer.eos]] for ids in tokenizer.encode_batch(texts)]
            outputs = model.translate_batch(pieces, beam_size=5, max_batch_size=batch, length_penalty=0.6)
            return [tokenizer.decode([place[p] for p in one.hypotheses[0]]) for one in outputs]

        ways = [partial(work, model, batch) for model in models for batch in (32, BATCH)]
        return min(ways, key=lambda way: min(seconds(way, 2))), len(texts)

    ours = {"regard": regard} | {f"regard_{kind}": partial(regard, kind) for kind in ("fp16", "int8")}
    return ours | {"ctranslate2": ctranslate2, "ctranslate2_int8": partial(ctranslate2, "int8")}


def random_weights() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    words, builders = contenders(device)
    times = {name: seconds(make(), 3, 2) for name, make in builders.items()}
    report(f"beam{BEAMS}-base-{words // LENGTH}x{LENGTH}", device, "tokens/s", words, **times)


def trained(folder: str, file: str) -> None:
    """Text in, text out. transformers gets sentences sorted by length too, in batches of the same size."""
    import transformers

    from regard.tasks.load import load

    device = "cuda" if torch.cuda.is_available() else "cpu"
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    ours = load(folder, device)
    theirs = transformers.MarianMTModel.from_pretrained(folder).to(device).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ordered = sorted(texts, key=len)
    made: dict[str, list[str]] = {}

    def regard() -> None:
        made["regard"] = ours.translate(ordered, beam=BEAMS, length_penalty=0.0)

    @torch.inference_mode()
    def hugging() -> None:
        made["transformers"] = []
        for start in range(0, len(ordered), BATCH):
            batch = tokenizer(ordered[start : start + BATCH], return_tensors="pt", padding=True).to(device)
            outputs = theirs.generate(**batch, num_beams=BEAMS, length_penalty=0.0, early_stopping=True, max_length=64)
            made["transformers"] += tokenizer.batch_decode(outputs, skip_special_tokens=True)

    times: dict[str, list[float]] = {"regard": [], "transformers": []}
    for _ in range(5):  # in turn, so that a slow minute affects both
        times["regard"] += seconds(regard, 1, warm=0)
        times["transformers"] += seconds(hugging, 1, warm=0)
    same = sum(a == b for a, b in zip(made["regard"], made["transformers"], strict=True))
    print(f"{same} of {len(texts)} translations are the same")
    words = sum(len(ids) for ids in ours.tokenizer.encode_batch(made["regard"]))
    report(f"beam{BEAMS}-{Path(folder).name}-{len(texts)}", device, "tokens/s", words, **times)


if __name__ == "__main__":
    trained(*sys.argv[1:3]) if len(sys.argv) > 2 else random_weights()
