"""GPT-2 124M decoding: tokens per second vs. transformers' generate, and on a CPU vs. CTranslate2, same weights.

python bench/gpt_decode.py        # a GPU: bf16, prompt 32, 256 new tokens, greedy, batch 1 and 64; else fp32, int8
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from _common import Contender, report, seconds

from regard.generate.engine import Engine, Sampling
from regard.models import build, config_for
from regard.nn.stored import store_

VOCAB, PROMPT = 50257, 32
NEW, ROUNDS = 64, 7  # on a CPU
NEW_ON_GPU = 256


def weights():
    torch.manual_seed(0)
    model = build(config_for("gpt", "gpt2", VOCAB, task="lm")).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2.0) if p.ndim > 1 else None  # so that greedy text does not fall into one word
    return model


def reference(model):
    import transformers

    from regard.models.published import published_weights

    transformers.logging.set_verbosity_error()
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCAB))
    theirs.load_state_dict(published_weights(model), strict=False)
    theirs.tie_weights()
    theirs.generation_config.eos_token_id = None
    theirs.generation_config.pad_token_id = 0
    return theirs.eval()


def on_gpu(rows: int) -> dict[str, Callable[[], Callable[[], Any]]]:
    """By name what decodes `rows` texts: ours, uncompiled and compiled, and transformers' static cache."""
    ids = prompts(rows)

    def regard(compiled: bool = False):
        engine = Engine(weights().cuda().bfloat16(), compile=compiled)
        return partial(engine.generate, ids.tolist(), Sampling(max_tokens=NEW_ON_GPU, temperature=0.0))

    def static_cache():
        model = reference(weights()).cuda().bfloat16()
        how = dict(attention_mask=torch.ones_like(ids).cuda(), do_sample=False, min_new_tokens=NEW_ON_GPU)
        return partial(model.generate, ids.cuda(), cache_implementation="static", max_new_tokens=NEW_ON_GPU, **how)

    return {"regard": regard, "regard_compiled": partial(regard, True), "transformers": static_cache}


def gpu(compared: bool) -> None:
    """Ours, uncompiled and compiled; if `compared`, then transformers' generate with a static cache."""
    for rows in (1, 64):
        times = {}
        for name, make in on_gpu(rows).items():
            if compared or name != "transformers":
                times[name] = seconds(make(), *((2, 1) if name == "transformers" else (10, 3)))
                print(f"{name}, batch {rows}: {rows * NEW_ON_GPU / min(times[name]):,.0f} tokens/s", flush=True)
        report(f"decode-gpt2-124M-batch{rows}", "cuda", "tokens/s", rows * NEW_ON_GPU, **times)


class Numbers:
    """A tokenizer whose words are numbers: CTranslate2's converter needs one, and the weights are random."""

    unk_token, bos_token, eos_token = "0", "50256", "50256"
    added_tokens_encoder: ClassVar[dict] = {}

    def get_vocab(self) -> dict[str, int]:
        return {str(i): i for i in range(VOCAB)}


def prompts(rows: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (rows, PROMPT), generator=torch.Generator().manual_seed(1))


def regard(threads: int, int8: bool = False):
    torch.set_num_threads(threads)
    model = weights()
    if int8:
        store_(model, "int8")
    engine, settings = Engine(model), Sampling(max_tokens=NEW, temperature=0.0)
    return lambda rows: engine.generate(prompts(rows).tolist(), settings)


def ctranslate2(threads: int):
    from ctranslate2 import Generator
    from ctranslate2.converters import TransformersConverter

    class Converter(TransformersConverter):
        def load_tokenizer(self, *_, **__):
            return Numbers()

    with tempfile.TemporaryDirectory() as folder:
        reference(weights()).save_pretrained(folder)
        Converter(folder).convert(f"{folder}/ct2", quantization="int8")
        generator = Generator(f"{folder}/ct2", inter_threads=1, intra_threads=threads, compute_type="int8")
    how = dict(max_length=NEW, min_length=NEW, sampling_topk=1, include_prompt_in_result=False)
    return lambda rows: len(generator.generate_batch([[str(i) for i in p] for p in prompts(rows).tolist()], **how))


def transformers(threads: int):
    torch.set_num_threads(threads)
    theirs = reference(weights())

    def generate(rows: int):
        ids = prompts(rows)
        how = dict(attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=NEW, max_new_tokens=NEW)
        return theirs.generate(ids, **how)

    return generate


def cpu(threads: int) -> None:
    """fp32 and int8 vs. CTranslate2 int8 and transformers fp32, in turn, so that a slow minute affects all."""
    torch.set_num_threads(threads)
    work = {
        "regard_int8": Contender(regard, threads, True),
        "regard": Contender(regard, threads),
        "ctranslate2_int8": Contender(ctranslate2, threads),
        "transformers": Contender(transformers, threads),
    }
    for rows in (1, 8):
        times: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(ROUNDS):
            for name, one in work.items():
                times[name] += one.seconds(rows)
        report(f"decode-gpt2-124M-{rows}x{NEW}-{threads}threads", "cpu", "tokens/s", rows * NEW, **times)


if __name__ == "__main__":
    gpu("ours" not in sys.argv) if torch.cuda.is_available() else cpu(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
