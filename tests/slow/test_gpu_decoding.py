"""Kernels for decoding on a GPU against torch's own operations, and searches that are replayed."""

import gc
from collections import defaultdict

import pytest
import torch
import torch.nn.functional as F

from regard.generate.engine import Engine
from regard.generate.request import Sampling
from regard.generate.scheduler import Scheduler
from regard.generate.search import Search, beam_search
from regard.models import build, config_for
from regard.nn.blocks import Block
from regard.nn.masks import Causal

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("written", [0, 5, 70])
def test_few_queries_are_attention_with_a_table(written, dtype):
    """New keys are written first; a query sees what its row of the table says. Without a table all of the keys."""
    from regard.nn.decoding import few_queries

    torch.manual_seed(0)
    B, H, T, width, capacity = 3, 2, 5, 32, 100
    qkv = torch.randn(B, T, 3 * H * width, device="cuda", dtype=dtype)
    q, k, v = (x.view(B, T, H, width).transpose(1, 2) for x in qkv.split(H * width, -1))
    keys, values = (torch.randn(B, H, capacity, width, device="cuda", dtype=dtype) for _ in range(2))
    slots = torch.arange(written, written + T, device="cuda")
    table = torch.rand(B, T, capacity, device="cuda") < 0.5
    table[:, :, slots] = torch.eye(T, dtype=torch.bool, device="cuda")
    table[:, :, written + T :] = False
    old = keys.clone(), values.clone()
    for cache, fresh in zip(old, (k, v), strict=True):
        cache[:, :, slots] = fresh
    near = dict(atol=1e-5, rtol=1e-5) if dtype == torch.float32 else dict(atol=2e-2, rtol=2e-2)
    expected = F.scaled_dot_product_attention(q, *old, attn_mask=table[:, None])
    torch.testing.assert_close(few_queries(q, keys, values, table, (k, v, slots)), expected, **near)
    assert torch.equal(keys, old[0]) and torch.equal(values, old[1])
    torch.testing.assert_close(few_queries(q, *old), F.scaled_dot_product_attention(q, *old), **near)


@pytest.mark.parametrize(("beams", "words"), [(4, 32000), (2, 70), (8, 3333), (1, 130)])
def test_best_words_are_topk_of_all_sums(beams, words):
    from regard.nn.decoding import best_words

    torch.manual_seed(0)
    logits, scores = 3 * torch.randn(3, beams, words, device="cuda"), torch.randn(3, beams, device="cuda")
    scores[0, 1:] = -torch.inf
    best, flat, end = best_words(logits, scores, 7, words - 1)
    sums = logits.log_softmax(-1)
    torch.testing.assert_close(end, sums[..., 7].clone(), atol=1e-5, rtol=1e-5)
    sums = sums + scores[:, :, None]
    sums[..., 7] = sums[..., -1] = -torch.inf
    expected, order = sums.flatten(1).topk(2 * beams, 1)
    torch.testing.assert_close(best, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(flat[expected > -torch.inf], order[expected > -torch.inf])


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("arch", ["transformer", "lstm"])
def test_replayed_searches_find_what_a_cpu_finds(arch, ragged, shake):
    """One after the other, of one shape: the first as it is, later ones replayed."""
    torch.manual_seed(0)
    model = shake(build(config_for(arch, "tiny", 97)), 2.0).eval()
    fast, shelf = build(model.config).cuda().eval(), {}
    fast.load_state_dict(model.state_dict())
    search = Search(beams=4, eos=0, pad=96, no_repeat_ngram=2 * ragged)
    for _ in range(6):
        source = torch.randint(1, 96, (5, 9))
        lengths = torch.tensor([9, 4, 7, 9, 2]) if ragged else None
        limits = torch.randint(8, 20, (5,))
        limits[0] = 20
        expected = beam_search(model, source, lengths, limits, search)
        on_gpu = (None if x is None else x.cuda() for x in (lengths, limits))
        got = beam_search(fast, source.cuda(), *on_gpu, search, look_every=4, shelf=shelf)
        assert torch.equal(got.lengths[:, 0].cpu(), expected.lengths[:, 0])
        assert torch.equal(got.ids[:, 0].cpu(), expected.ids[:, 0])
        torch.testing.assert_close(got.scores[:, 0].cpu(), expected.scores[:, 0], atol=1e-3, rtol=1e-3)
    assert len(shelf) == 1


@pytest.mark.parametrize("rows", [5, 30, 64])
@pytest.mark.parametrize(("columns", "inner"), [(2304, 768), (768, 3072), (256, 256)])
def test_products_of_tens_of_rows_are_linear_maps(columns, inner, rows):
    """Also where several programs share a sum, again and again: their counters are zero at the end."""
    from regard.nn.batched import counters, rows_times, takes_rows

    torch.manual_seed(0)
    shapes = (rows, inner), (columns, inner), (columns,), (rows, columns)
    x, weight, bias, residual = (torch.randn(shape, device="cuda").bfloat16() for shape in shapes)
    weight *= inner**-0.5
    assert takes_rows(x, weight)
    plain = F.linear(x.double(), weight.double())
    near = dict(atol=2e-2, rtol=2e-2)
    for _ in range(3):
        torch.testing.assert_close(rows_times(x, weight, residual=residual).double(), plain + residual, **near)
        expected = F.gelu(plain + bias, approximate="tanh")
        torch.testing.assert_close(rows_times(x, weight, bias, gelu=True).double(), expected, **near)
    assert not counters(x.device).any()


@pytest.mark.parametrize("words", [97, 50257])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_best_word_is_the_first_of_equals(dtype, words):
    from regard.nn.batched import best_word

    torch.manual_seed(0)
    logits = torch.randn(33, words + 47, device="cuda").to(dtype)[:, :words]
    logits[0] = 1.0
    expected = torch.tensor([row.index(max(row)) for row in logits.tolist()])
    assert torch.equal(best_word(logits).cpu(), expected)


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_texts_by_replayed_graphs_are_those_of_a_cpu(rows, shake):
    """Prompts of several lengths, more steps than one graph has, again in the same memory."""
    torch.manual_seed(0)
    model = shake(build(config_for("gpt", "tiny", 97, task="lm", context=96)), 2.0).eval()
    fast = build(model.config).cuda().eval()
    fast.load_state_dict(model.state_dict())
    prompts = [torch.randint(97, (1 + 7 * row % 30,)).tolist() for row in range(rows)]
    settings, engine = Sampling(temperature=0, max_tokens=29), Engine(fast, ends=[0])
    expected = Engine(model, ends=[0]).generate(prompts, settings)
    for _ in range(3):
        assert engine.generate(prompts, settings) == expected
    scheduler, texts = Scheduler(fast, [0], slots=4), defaultdict(list)
    keys = [scheduler.add(prompt, settings) for prompt in prompts]
    while scheduler.active:
        for event in scheduler.step():
            texts[event.row] += event.ids
    assert [texts[key] for key in keys] == [completions[0].ids for completions in expected]


@pytest.mark.parametrize(("rows", "heads", "groups"), [(1, 12, 12), (64, 12, 12), (64, 12, 4), (33, 8, 8)])
def test_look_back_is_attention_to_the_past(rows, heads, groups):
    from regard.nn.decoding import look_back

    torch.manual_seed(0)

    def random(heads):
        return torch.randn(rows, 1, heads * 64, device="cuda").bfloat16().view(rows, 1, heads, 64).transpose(1, 2)

    q, k, v = random(heads), random(groups), random(groups)
    keys, values = (torch.randn(rows, groups, 257, 64, device="cuda").bfloat16() for _ in range(2))
    slots = torch.randint(0, 256, (rows, 1), device="cuda")
    got = look_back(q, k, v, keys, values, slots)
    assert torch.equal(keys[torch.arange(rows), :, slots[:, 0]], k[:, :, 0])
    seen = (torch.arange(257, device="cuda") <= slots)[:, None, None]
    expected = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=True)
    torch.testing.assert_close(got, expected, atol=2e-2, rtol=2e-2)


def test_graphs_of_engines_that_are_gone_spoil_no_capture():
    """They are in cycles, so the garbage collector frees them at any moment but while another one is captured."""
    torch.manual_seed(0)
    model = build(config_for("gpt", "tiny", 97, task="lm", context=96)).cuda().eval()
    settings, thresholds = Sampling(temperature=0, max_tokens=8), gc.get_threshold()
    try:
        gc.set_threshold(20, 1, 1)
        texts = [Engine(model).generate([[1, 2, 3]], settings)[0][0].ids for _ in range(12)]
    finally:
        gc.set_threshold(*thresholds)
    assert texts == texts[:1] * 12


@pytest.mark.parametrize("rows", [2, 9])
def test_a_block_by_decoding_kernels_is_the_plain_one(rows, shake):
    torch.manual_seed(0)
    config = config_for("gpt", "tiny", 97, task="lm", context=96)
    block: Block = shake(build(config).blocks[0], 2.0).cuda().eval()
    x = torch.randn(rows, 1 if rows < 5 else 3, config.width, device="cuda")
    mask = Causal(x.size(1), "cuda")
    with torch.no_grad():
        got = block(x, mask, None, None)
    expected = block.double()(x.double(), mask, None, None).detach()
    torch.testing.assert_close(got.double(), expected, atol=1e-3, rtol=1e-3)
