"""The overhead of looking inside: 1,024 tokens through a GPT of 12 layers with 12 heads, on a CPU.

python bench/studio.py [THREADS]    # 2 threads by default

Three questions: how much longer the forward pass takes while it is watched (at most 15 %), how long after it the first
figure's bytes are ready (at most 2 s), and how many bytes these are (at most 1 MiB).
"""

import sys
import time

import torch
from _common import machine, report, seconds

from regard.data.tokenizers.bytelevel import ByteLevel
from regard.inside.look import look
from regard.inside.looked import Question
from regard.models import build
from regard.models.gpt import GPTConfig
from regard.nn.taps import watch
from regard.predictors import Writer

TOKENS, ROUNDS = 1024, 5
OVERHEAD, SECONDS, BYTES = 1.15, 2.0, 1 << 20


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    torch.manual_seed(0)
    writer = Writer(build(GPTConfig(vocab=50257)), ByteLevel.train(["a"], 257))
    question = Question(text="".join(chr(97 + place % 26) for place in range(TOKENS)))
    ids = writer.encode(question.text)

    @torch.inference_mode()
    def plain() -> None:
        writer.hidden(ids)

    @torch.inference_mode()
    def watched() -> None:
        with watch(writer.model, "*look"):
            writer.hidden(ids)

    alone, seen = [], []
    for _ in range(ROUNDS):  # in turn, so that a busy moment affects both
        alone += seconds(plain, 1)
        seen += seconds(watched, 1, warm=0)
    report("studio-watch-gpt2-1024", "cpu", "tokens/s", TOKENS, watched=seen, plain=alone)

    after, size = [], 0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        found = look(writer, question)
        size = len(found.bytes(look="0" * 16, model={}))
        after.append(time.perf_counter() - start - found.seconds)
    print(f"studio-look-gpt2-1024 · {machine('cpu')} · first figure {min(after):.2f} s after the pass · {size:,} bytes")
    wrong = [
        f"watching costs {min(seen) / min(alone) - 1:.0%}" * (min(seen) > OVERHEAD * min(alone)),
        f"the first figure takes {min(after):.2f} s" * (min(after) > SECONDS),
        f"{size:,} bytes are sent" * (size > BYTES),
    ]
    if problems := [text for text in wrong if text]:
        raise SystemExit("; ".join(problems))


if __name__ == "__main__":
    main()
