"""A GPU gives what a CPU gives: kernels, the replayed step, compiled losses. Skipped where there is none."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.data.batch import Tokens
from regard.data.loader import Loader
from regard.data.masked import Sentences
from regard.data.masking import MaskedRows, Rules
from regard.generate.engine import Engine, Sampling
from regard.models import build, config_for
from regard.models.bert import BertConfig
from regard.nn.attention import packed_attention, plain_attention
from regard.nn.masks import Packed
from regard.objectives.masked_token import MaskedToken
from regard.objectives.next_token import NextToken
from regard.train.optim import Optimiser
from regard.train.recorded import RecordedPass
from regard.train.settings import Optim

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def model(arch: str, shake):
    torch.manual_seed(0)
    return shake(build(config_for(arch, "tiny", 97, task="lm", context=96)), 2.0).eval()


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (6, 2)])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_looking_back_is_attention_over_the_cache(rows, heads, groups):
    from regard.nn.kernels import look_back

    g = torch.Generator("cuda").manual_seed(0)
    q, k, v = (torch.randn(rows, n, 1, 32, generator=g, device="cuda") for n in (heads, groups, groups))
    keys, values = (torch.randn(rows, groups, 300, 32, generator=g, device="cuda") for _ in range(2))
    slots = torch.randint(0, 300, (rows, 1), generator=g, device="cuda")
    slots[0] = 0  # nothing before it
    out = look_back(q, k, v, keys, values, slots)
    for b, slot in enumerate(slots[:, 0].tolist()):
        assert torch.equal(keys[b, :, slot], k[b, :, 0]) and torch.equal(values[b, :, slot], v[b, :, 0])
        seen = keys[b : b + 1, :, : slot + 1], values[b : b + 1, :, : slot + 1]
        wanted = F.scaled_dot_product_attention(q[b : b + 1], *seen, enable_gqa=True)
        torch.testing.assert_close(out[b : b + 1], wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("vocab", "columns"), [(9000, 9024), (4090, 4160), (65, 65), (4096, 4096)])
def test_the_softmax_error_is_the_gradient_of_the_cross_entropy(smoothing, vocab, columns, dtype, near):
    """Rows that are no words, a target that does not count, the first and the last word."""
    from regard.nn.kernels import softmax_error

    g = torch.Generator("cuda").manual_seed(0)
    logits = (3 * torch.randn(5, columns, generator=g, device="cuda")).to(dtype)
    targets = torch.tensor([3, vocab - 1, -1, vocab // 2, 0], device="cuda")
    words = logits[:, :vocab].float().requires_grad_()
    how = dict(reduction="none", label_smoothing=smoothing, ignore_index=-1)
    wanted = F.cross_entropy(words, targets, **how)
    wanted.sum().backward()
    loss, error = softmax_error(logits, targets, smoothing, vocab)
    torch.testing.assert_close(loss, wanted.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(error[:, :vocab].float(), words.grad, atol=near, rtol=1e-4)
    assert not error[:, vocab:].any()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("arch", ["gpt", "llama"])
def test_a_replayed_step_writes_what_a_cpu_writes(arch, compiled, shake):
    prompts, settings = [[1, 2, 3, 4, 5], [7], [9, 8, 7]], Sampling(max_tokens=40, temperature=0.0)
    wanted = Engine(model(arch, shake)).generate(prompts, settings)
    engine = Engine(model(arch, shake).cuda(), compile=compiled)
    for _ in range(2):  # the second call replays what the first one captured
        got = engine.generate(prompts, settings)
        assert [[c.ids for c in group] for group in got] == [[c.ids for c in group] for group in wanted]


@pytest.mark.parametrize("arch", ["gpt", "llama"])
def test_the_compiled_loss_in_bf16_is_near_the_plain_one_in_float64(arch, shake):
    """And so are its gradients: a loss can be right and teach nothing."""
    ids = torch.randint(0, 97, (8, 65), generator=torch.Generator().manual_seed(0))
    plain, fast = model(arch, shake).double(), model(arch, shake).cuda()
    wanted = NextToken().loss_sum(plain, Tokens(ids=ids))
    wanted.backward()
    task = NextToken()
    task.compile()
    with torch.autocast("cuda", torch.bfloat16):
        got = task.loss_sum(fast, Tokens(ids=ids).to("cuda"))
    got.backward()
    assert abs(got.item() / wanted.item() - 1) < 0.01
    same_gradients(plain, fast)


def same_gradients(plain, fast, within=0.1):
    for (name, p), q in zip(plain.named_parameters(), fast.parameters(), strict=True):
        assert p.grad is not None and q.grad is not None
        apart = (p.grad - q.grad.cpu()).norm() / p.grad.norm()
        assert apart < within, f"{name}: {apart:.3f}"


def test_packed_attention_is_the_plain_one_with_its_table():
    """Texts of 1 to 60 tokens, an empty one, and padding: values and gradients, to the precision of bf16."""
    g = torch.Generator("cuda").manual_seed(0)
    starts = torch.tensor([0, 60, 61, 75, 75, 120, 128, 128], dtype=torch.int32, device="cuda")
    mask, found = Packed(starts, 128, longest=60), []
    given = [torch.randn(1, 128, 4, 32, generator=g, device="cuda").transpose(1, 2) for _ in range(3)]  # 1 H T K
    weigh = torch.randn(1, 4, 128, 32, generator=g, device="cuda")
    for attention, dtype in ((packed_attention, torch.bfloat16), (plain_attention, torch.float64)):
        inputs = [x.bfloat16().to(dtype).requires_grad_() for x in given]
        y = attention(*inputs, mask)
        (y * weigh).sum().backward()
        found.append([y.double(), *(x.grad.double() for x in inputs)])
    assert Packed(starts, 128, 60).has_kernel(given[0].bfloat16()) and not mask.has_kernel(given[0])
    for fast, plain in zip(*found, strict=True):
        assert (fast - plain).abs().max() < 0.02 * plain.abs().max()


def masked_batches():
    random = np.random.default_rng(0)
    text = Sentences.of(
        [[random.integers(5, 90, random.integers(2, 20)).tolist() for _ in range(6)] for _ in range(60)]
    )
    rules = Rules(48, np.arange(90) < 5, np.zeros(90, bool), 0, 2, 3, 4)
    source = MaskedRows(text, rules, 512, packed=True)
    rows = Loader(source, source.plan, 0)
    return [next(rows) for _ in range(4)]


def test_packed_pre_training_compiled_in_bf16_is_near_the_plain_one_in_float64(shake):
    config = BertConfig(
        vocab=90, width=64, layers=2, heads=2, ffn=96, max_length=48, dropout=0.0, attention_dropout=0.0,
        head="pretraining",
    )  # fmt: skip
    torch.manual_seed(0)
    plain = shake(build(config), 2.0).double()
    fast = build(config)
    fast.load_state_dict(plain.state_dict())
    fast, task = fast.cuda(), MaskedToken()
    task.compile()
    for batch in masked_batches():
        wanted = MaskedToken().loss_sum(plain, batch)
        wanted.backward()
        with torch.autocast("cuda", torch.bfloat16):
            got = task.loss_sum(fast, batch.to("cuda"))
        got.backward()
        assert abs(got.item() / wanted.item() - 1) < 0.01
    same_gradients(plain, fast)


def test_a_step_of_pre_training_never_waits_for_the_device():
    config = BertConfig(
        vocab=90, width=64, layers=1, heads=2, ffn=96, max_length=48, attention_dropout=0.0, head="pretraining"
    )
    model, task = build(config).cuda(), MaskedToken()
    batches = masked_batches()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches:
            with torch.autocast("cuda", torch.bfloat16):
                task.loss_sum(model, batch.to("cuda")).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_vectors_of_packed_texts_in_bf16_are_near_those_of_a_cpu(shake):
    from regard.data.tokenizers.wordpiece import WordPiece
    from regard.predictors import Embedder

    texts = ["A cat sits on the mat.", "dogs", "The curious kitten deftly climbed the bookshelf, twice!"] * 20
    pieces = WordPiece.train(texts, 120)
    torch.manual_seed(0)
    config = BertConfig(vocab=pieces.size, width=64, layers=3, heads=2, ffn=96, max_length=40)
    model = shake(build(config), 2.0)
    for pooling in ("mean", "max", "cls"):
        want = Embedder(model, pieces).embed(texts, pooling=pooling)
        got = Embedder(model, pieces, "cuda").embed(texts, pooling=pooling)
        assert (want * got).sum(1).min() > 0.999
        model.cpu()


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_replayed_passes_train_as_launched_ones_do(dropout):
    """Steps of two shapes, both recorded, and one of a third: the same losses and, at the end, weights."""
    g = torch.Generator().manual_seed(0)
    batches = [Tokens(ids=torch.randint(0, 97, (rows, 33), generator=g)) for rows in [8, 7] * 6 + [3, 8, 7]]
    found = []
    for kind in (None, RecordedPass):
        torch.manual_seed(0)
        gpt = build(config_for("gpt", "tiny", 97, task="lm", context=32, dropout=dropout)).cuda().train()
        optimiser, task = Optimiser(gpt, Optim(lr=1e-3)), NextToken()

        def share(batch, count, gpt=gpt, task=task):
            with torch.autocast("cuda", torch.bfloat16):
                loss = task.loss_sum(gpt, batch.to("cuda")) / count
            loss.backward()
            return loss.detach()

        work = share if kind is None else kind(share, gpt)
        losses = []
        for batch in batches:
            losses.append(work(batch, batch.count).clone())
            optimiser.step(torch.zeros((), device="cuda"))
            optimiser.zero_grad()
        assert kind is None or len(work.recordings) == 2
        found.append((torch.stack(losses), *(p.detach() for p in gpt.parameters())))
    for launched, replayed in zip(*found, strict=True):
        torch.testing.assert_close(replayed, launched, rtol=1e-3, atol=1e-4)
