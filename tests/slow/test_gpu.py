"""A GPU gives what a CPU gives: kernels, the replayed step, compiled losses. Skipped where there is none."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.unit.training.test_recorded import FAMILIES, network, ragged

from regard.data.batch import Tokens, collate
from regard.data.blocks import TextRows
from regard.data.loader import Loader
from regard.data.masked import SentenceIds
from regard.data.masking import MaskedRows, Rules
from regard.data.store import Flat
from regard.data.text import TokenFile
from regard.generate.engine import Engine, Sampling
from regard.models import build, config_for
from regard.models.bert import BertConfig
from regard.models.transformer import TransformerConfig
from regard.nn.attention import packed_attention, plain_attention
from regard.nn.blocks import PostNormEncoderLayer, PreNormEncoderLayer
from regard.nn.masks import Everything, Packed
from regard.objectives.losses import chunked_cross_entropy_sum, plain_cross_entropy_sum
from regard.objectives.masked_token import MaskedToken
from regard.objectives.next_token import NextToken
from regard.objectives.regularised import Regularised
from regard.objectives.translate import TranslateLoss
from regard.training.optim import Optimiser
from regard.training.recorded import RecordedStep
from regard.training.settings import Optim

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def model(arch: str, shake):
    torch.manual_seed(0)
    return shake(build(config_for(arch, "tiny", 97, task="lm", context=96)), 2.0).eval()


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (6, 2)])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_looking_back_is_attention_over_the_cache(rows, heads, groups):
    from regard.nn.decoding import look_back

    g = torch.Generator("cuda").manual_seed(0)
    q, k, v = (torch.randn(rows, n, 1, 32, generator=g, device="cuda") for n in (heads, groups, groups))
    keys, values = (torch.randn(rows, groups, 300, 32, generator=g, device="cuda") for _ in range(2))
    slots = torch.randint(0, 300, (rows, 1), generator=g, device="cuda")
    slots[0] = 0  # nothing before it
    out = look_back(q, k, v, keys, values, slots)
    for b, slot in enumerate(slots[:, 0].tolist()):
        assert torch.equal(keys[b, :, slot], k[b, :, 0]) and torch.equal(values[b, :, slot], v[b, :, 0])
        seen = keys[b : b + 1, :, : slot + 1], values[b : b + 1, :, : slot + 1]
        expected = F.scaled_dot_product_attention(q[b : b + 1], *seen, enable_gqa=True)
        torch.testing.assert_close(out[b : b + 1], expected, atol=1e-5, rtol=1e-5)


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
    expected = F.cross_entropy(words, targets, **how)
    expected.sum().backward()
    loss, error = softmax_error(logits, targets, smoothing, vocab)
    torch.testing.assert_close(loss, expected.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(error[:, :vocab].float(), words.grad, atol=near, rtol=1e-4)
    assert not error[:, vocab:].any()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("arch", ["gpt", "llama"])
def test_a_replayed_step_writes_what_a_cpu_writes(arch, compiled, shake):
    prompts, settings = [[1, 2, 3, 4, 5], [7], [9, 8, 7]], Sampling(max_tokens=40, temperature=0.0)
    expected = Engine(model(arch, shake)).generate(prompts, settings)
    engine = Engine(model(arch, shake).cuda(), compile=compiled)
    for _ in range(2):  # the second call replays what the first one captured
        got = engine.generate(prompts, settings)
        assert [[c.ids for c in group] for group in got] == [[c.ids for c in group] for group in expected]


@pytest.mark.parametrize("arch", ["gpt", "llama"])
def test_the_compiled_loss_in_bf16_is_near_the_plain_one_in_float64(arch, shake):
    """And so are its gradients: a loss can be right and teach nothing."""
    ids = torch.randint(0, 97, (8, 65), generator=torch.Generator().manual_seed(0))
    plain, fast = model(arch, shake).double(), model(arch, shake).cuda()
    expected = NextToken().loss_sum(plain, Tokens(ids=ids))
    expected.backward()
    task = NextToken()
    task.compile()
    with torch.autocast("cuda", torch.bfloat16):
        got = task.loss_sum(fast, Tokens(ids=ids).to("cuda"))
    got.backward()
    assert abs(got.item() / expected.item() - 1) < 0.01
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
    mask, results = Packed(starts, 128, longest=60), []
    given = [torch.randn(1, 128, 4, 32, generator=g, device="cuda").transpose(1, 2) for _ in range(3)]  # 1 H T K
    weigh = torch.randn(1, 4, 128, 32, generator=g, device="cuda")
    for attention, dtype in ((packed_attention, torch.bfloat16), (plain_attention, torch.float64)):
        inputs = [x.bfloat16().to(dtype).requires_grad_() for x in given]
        y = attention(*inputs, mask)
        (y * weigh).sum().backward()
        results.append([y.double(), *(x.grad.double() for x in inputs)])
    assert Packed(starts, 128, 60).has_kernel(given[0].bfloat16()) and not mask.has_kernel(given[0])
    for fast, plain in zip(*results, strict=True):
        assert (fast - plain).abs().max() < 0.02 * plain.abs().max()


def masked_batches():
    random = np.random.default_rng(0)
    text = SentenceIds.of(
        [[random.integers(5, 90, random.integers(2, 20)).tolist() for _ in range(6)] for _ in range(60)]
    )
    rules = Rules(48, np.arange(90) < 5, np.zeros(90, bool), 0, 2, 3, 4)
    source = MaskedRows(text, rules, 512, packed=True)
    rows = Loader(source, source.plan, 0)
    return [next(rows) for _ in range(4)]


def test_compiled_bf16_packed_pretraining_is_close_to_float64(shake):
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
        expected = MaskedToken().loss_sum(plain, batch)
        expected.backward()
        with torch.autocast("cuda", torch.bfloat16):
            got = task.loss_sum(fast, batch.to("cuda"))
        got.backward()
        assert abs(got.item() / expected.item() - 1) < 0.01
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
        expected = Embedder(model, pieces).embed(texts, pooling=pooling)
        got = Embedder(model, pieces, "cuda").embed(texts, pooling=pooling)
        assert (expected * got).sum(1).min() > 0.999
        model.cpu()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("arch", "optim"), [("gpt", "muon"), ("gpt", "adamw"), ("lstm", "adamw")])
def test_replayed_steps_train_as_launched_ones_do(arch, optim, compiled):
    """Batches of a text, some not full, and one of another shape, at a rate that falls: the same losses and weights."""
    text = np.random.default_rng(0).integers(0, 97, 1000)
    results = []
    for recorded in (False, True):
        torch.manual_seed(0)
        torch._dynamo.reset()
        rows = TextRows(TokenFile(Flat([text])), 32, 8 * 32)
        loader = Loader(rows, rows.plan, seed=0)
        batches = [next(loader) for _ in range(14)]
        batches.insert(7, batches[0].part(slice(3)))
        model = build(config_for(arch, "tiny", 97, task="lm", dropout=0.0)).cuda().train()
        optimiser, objective = Optimiser(model, Optim(name=optim, lr=1e-2, adam_lr=1e-2, eps=1e-2)), NextToken()
        if compiled:
            objective.compile()

        def step(batches, count, objective=objective, model=model, optimiser=optimiser):
            with torch.autocast("cuda", torch.bfloat16):
                loss = objective.loss_sum(model, batches[0].to("cuda")) / count
            loss.backward()
            return loss.detach(), *optimiser.update(loss.detach())

        work = RecordedStep(step, torch.device("cuda"), fills=True) if recorded else step
        losses = []
        for number, batch in enumerate(batches):
            optimiser.set_lr(0.01 * (1 - number / 20))
            losses.append(work([batch.marked()], batch.count)[0].clone())
        assert not recorded or len(work.recordings) == 1
        results.append((torch.stack(losses), *(p.detach() for p in model.parameters())))
    for launched, replayed in zip(*results, strict=True):
        torch.testing.assert_close(replayed, launched, rtol=1e-2, atol=4e-3)  # bf16, and muon's steps are large


@pytest.mark.parametrize("family", FAMILIES)
def test_replayed_steps_of_ragged_batches_train_as_launched_ones_do(family):
    """With R-Drop and a teacher, filled up to a recorded shape: the same losses and weights. Compiled ragged batches
    are never recorded."""
    make, settings = FAMILIES[family]
    results = []
    for recorded in (False, True):
        student, teacher = (network(family, seed, settings).cuda() for seed in (0, 1))
        objective = Regularised(make(), 3.0, [teacher], 0.4)
        optimiser = Optimiser(student, Optim(name="muon", lr=1e-3, adam_lr=1e-3, eps=1e-2))

        def step(batches, count, objective=objective, model=student, optimiser=optimiser):
            loss = objective.loss_sum(model, batches[0].to("cuda")) / count
            loss.backward()
            return loss.detach(), *optimiser.update(loss.detach())

        work = RecordedStep(step, torch.device("cuda"), fills=True) if recorded else step
        losses = [work([batch], objective.count(batch))[0].clone() for batch in ragged(family)]
        assert not recorded or len(work.recordings) == 1
        results.append((torch.stack(losses), *(p.detach() for p in student.parameters())))
    for launched, replayed in zip(*results, strict=True):
        torch.testing.assert_close(replayed, launched, rtol=1e-2, atol=4e-3)  # TF32 and Muon's bf16


def test_a_replayed_dropout_is_another_every_time():
    """Without it the losses of one batch would repeat, the weights standing still."""
    torch.manual_seed(0)
    model, objective = build(config_for("gpt", "tiny", 97, task="lm", dropout=0.3)).cuda().train(), NextToken()
    optimiser, batch = Optimiser(model, Optim(lr=1e-12)), Tokens(ids=torch.randint(0, 97, (8, 33)))

    def step(batches, count):
        loss = objective.loss_sum(model, batches[0].to("cuda")) / count
        loss.backward()
        return loss.detach(), *optimiser.update(loss.detach())

    work = RecordedStep(step, torch.device("cuda"), fills=True)
    losses = [work([batch], batch.count)[0].item() for _ in range(8)]
    assert len(work.recordings) == 1 and len(set(losses)) == 8


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("width", "drop"), [(96, 0.0), (512, 0.3), (768, 0.1)])
def test_sum_dropout_and_norm_in_one_kernel_are_torchs(width, drop, both):
    """What was dropped is read off the sum; it is as many as asked for, and the same backward."""
    from regard.nn.kernels import add_norm, add_norm_grad

    g = torch.Generator("cuda").manual_seed(0)
    x, y, dnorm, dtotal = (torch.randn(300, width, generator=g, device="cuda") for _ in range(4))
    scale, bias = (torch.randn(width, generator=g, device="cuda") for _ in range(2))
    seed = torch.tensor([7], device="cuda")
    total, out, mean, spread = add_norm(x, y, scale, bias, 1e-5, drop, seed)
    kept = (total - x).abs() > 1e-6 * y.abs()
    assert abs(kept.float().mean() - (1 - drop)) < 0.01
    inputs = [t.double().requires_grad_() for t in (x, y, scale, bias)]
    expected = inputs[0] + inputs[1] * kept / (1 - drop)
    normed = F.layer_norm(expected, (width,), *inputs[2:], 1e-5)
    ((normed * dnorm).sum() + both * (expected * dtotal).sum()).backward()
    torch.testing.assert_close(total.double(), expected.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out.double(), normed.detach(), atol=1e-4, rtol=1e-4)
    actual = add_norm_grad(dnorm, dtotal if both else None, total, scale, mean, spread, drop, seed)
    for mine, t in zip(actual, inputs, strict=True):
        torch.testing.assert_close(mine.double(), t.grad, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_translator_by_fused_kernels_is_the_plain_one_in_float64(norm, compiled, shake):
    config = TransformerConfig(
        vocab=23, width=32, heads=2, ffn=48, encoder_layers=2, decoder_layers=2, dropout=0.0, norm=norm
    )
    torch.manual_seed(0)
    plain = shake(build(config), 2.0).double()
    fast = build(config)
    fast.load_state_dict(plain.state_dict())
    fast, objective = fast.cuda().train(), TranslateLoss(0.1)
    if compiled:
        objective.compile()
    sides = [torch.randint(1, 22, (12,), generator=torch.Generator().manual_seed(i)).tolist() for i in range(8)]
    batch = collate(sides[:4], sides[4:], eos=0, pad=22)
    expected = TranslateLoss(0.1).loss_sum(plain, batch)
    expected.backward()
    got = objective.loss_sum(fast, batch.to("cuda"))
    got.backward()
    assert abs(got.item() / expected.item() - 1) < 1e-5
    same_gradients(plain, fast, within=1e-4)


@pytest.mark.parametrize("compiled", [False, True])
def test_chunks_of_the_head_are_the_plain_one(compiled):
    """A compiled kernel once forgot where a part of the targets begins: several chunks, targets of a tensor of their
    own and of a view."""
    g = torch.Generator("cuda").manual_seed(0)
    x, weight = (torch.randn(1024, 64, generator=g, device="cuda") for _ in range(2))
    ids = torch.randint(0, 1000, (32, 33), generator=g, device="cuda")
    for targets in (ids[:, 1:].flatten(), torch.randint(-1, 1000, (1024,), generator=g, device="cuda")):
        results = []
        for work in (plain_cross_entropy_sum, partial(chunked_cross_entropy_sum, rows=256)):
            inputs = [t.clone().requires_grad_() for t in (x, weight)]
            torch._dynamo.reset()
            loss = (torch.compile(work) if compiled else work)(*inputs, targets, vocab=1000)
            loss.backward()
            results.append((loss.detach(), *(t.grad for t in inputs)))
        for plain, chunked in zip(*results, strict=True):
            assert (plain - chunked).norm() < 1e-4 * plain.norm()


@pytest.mark.parametrize("shape", [(700, 200), (9, 3072), (300, 17)])
@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh"])
def test_bias_and_activation_in_one_kernel_are_torchs(activation, shape):
    from regard.nn.blocks import ACTIVATIONS
    from regard.nn.kernels import bias_act, bias_act_grad

    g = torch.Generator("cuda").manual_seed(0)
    x, dy = (3 * torch.randn(shape, generator=g, device="cuda") for _ in range(2))
    bias = torch.randn(shape[1], generator=g, device="cuda")
    inputs = [t.double().requires_grad_() for t in (x, bias)]
    y = ACTIVATIONS[activation]()(inputs[0] + inputs[1])
    y.backward(dy.double())
    torch.testing.assert_close(bias_act(x, bias, activation).double(), y.detach(), atol=1e-5, rtol=1e-5)
    for mine, t in zip(bias_act_grad(dy, x, bias, activation), inputs, strict=True):
        torch.testing.assert_close(mine.double(), t.grad, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("layer", [PostNormEncoderLayer, PreNormEncoderLayer])
def test_a_layer_by_fused_kernels_is_the_plain_one_in_float64(layer, compiled, shake):
    torch.manual_seed(0)
    plain = shake(layer(64, 4, 96, 0.0, "gelu"), 2.0).double().train()
    fast = layer(64, 4, 96, 0.0, "gelu").cuda().train()
    fast.load_state_dict(plain.state_dict())
    x, weigh = torch.randn(2, 3, 50, 64)
    found = []
    for model in (plain, torch.compile(fast) if compiled else fast):
        own = next(model.parameters())
        given = x.to(own).requires_grad_()
        (model(given, Everything()) * weigh.to(own)).sum().backward()
        found.append(given.grad.cpu())
    assert (found[1] - found[0]).norm() < 1e-4 * found[0].norm()
    same_gradients(plain, fast, within=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 768, 2304), (3, 96, 100), (4, 3072, 768), (1, 1000, 50)])
def test_a_few_rows_times_a_matrix_with_all_around_it_are_torchs(rows, inner, columns, dtype):
    from regard.nn.decoding import row_times

    g = torch.Generator("cuda").manual_seed(0)
    x, residual = (torch.randn(rows, n, generator=g, device="cuda").to(dtype) for n in (inner, columns))
    weight = (torch.randn(columns, inner, generator=g, device="cuda") / inner**0.5).to(dtype)
    bias, scale, shift = (torch.randn(n, generator=g, device="cuda").to(dtype) for n in (columns, inner, inner))
    for norm in (None, (scale, shift, 1e-5)):
        for gelu in (False, True):
            for added in (None, residual):
                wanted = x.double()
                if norm:
                    wanted = F.layer_norm(wanted, (inner,), scale.double(), shift.double(), 1e-5)
                wanted = F.linear(wanted, weight.double(), bias.double())
                wanted = F.gelu(wanted, approximate="tanh") if gelu else wanted
                wanted = wanted if added is None else wanted + added
                got = row_times(x, weight, bias, norm, gelu, added).double()
                assert (got - wanted).norm() < (1e-5 if dtype == torch.float32 else 5e-3) * wanted.norm()
