"""Kernels for decoding on a GPU against torch's own operations, and searches that are replayed."""

import pytest
import torch
import torch.nn.functional as F

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
