"""A GPU gives what a CPU gives: the kernel, the replayed step, the compiled loss. Skipped where there is none."""

import pytest
import torch
import torch.nn.functional as F

from regard.data.batch import Tokens
from regard.generate.engine import Engine, Sampling
from regard.models import build, config_for
from regard.tasks.next_token import NextToken

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
def test_the_compiled_loss_in_bf16_is_near_the_plain_one_in_float32(arch, shake):
    ids = torch.randint(0, 97, (8, 65), generator=torch.Generator().manual_seed(0))
    plain, fast = model(arch, shake).double(), model(arch, shake).cuda()
    wanted = NextToken().loss_sum(plain, Tokens(ids=ids))
    task = NextToken()
    task.compile()
    with torch.autocast("cuda", torch.bfloat16):
        got = task.loss_sum(fast, Tokens(ids=ids).to("cuda"))
    assert abs(got.item() / wanted.item() - 1) < 0.01
