"""LoRA beside the formula written out, beside separate q, k and v, and beside the plain model it becomes."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.checkpoint import load_weights, weights
from regard.errors import ConfigError
from regard.models import GPTConfig, LlamaConfig, TransformerConfig, build
from regard.models.base import LanguageModel
from regard.nn.linear import FusedLinear
from regard.nn.lora import LoraLinear, adapters, add_lora_, merge_, merged_state
from regard.training import optim
from regard.training.settings import NAMES

SOURCE, INPUTS = torch.randint(0, 12, (2, 5)), torch.randint(0, 12, (2, 4))
TINY = TransformerConfig(
    vocab=13, width=8, heads=2, ffn=12, encoder_layers=1, decoder_layers=1, dropout=0.0, output_bias=True
)

GPT = GPTConfig(vocab=13, width=8, heads=2, ffn=12, layers=2, context=8)
LLAMA = LlamaConfig(vocab=13, width=8, heads=4, kv_heads=2, head_width=4, ffn=12, layers=2, context=8, tied=False)


def lora_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Every A and B: all that is trained."""
    return [p for lora in adapters(model).values() for p in (lora.A, lora.B)]


@pytest.fixture
def model(request, shake) -> nn.Module:
    return shake(build(getattr(request, "param", TINY))).double()


every_kind = pytest.mark.parametrize("model", [TINY, GPT, LLAMA], ids=["transformer", "gpt", "llama"], indirect=True)


def run(model: nn.Module) -> torch.Tensor:
    return model.logits(model(SOURCE) if isinstance(model, LanguageModel) else model(SOURCE, None, INPUTS))


def taught(model: nn.Module) -> nn.Module:
    """As after some training: no B is zero any more."""
    with torch.no_grad():
        for p in lora_parameters(model):
            p.add_(torch.randn_like(p), alpha=0.3)
    return model


def test_a_linear_map_is_the_formula_of_the_paper():
    base = nn.Linear(6, 5).double()
    lora = LoraLinear(base, rank=2, alpha=3.0)
    nn.init.normal_(lora.B)
    x = torch.randn(4, 7, 6, dtype=torch.float64)
    assert lora.A.shape == (2, 6) and lora.B.shape == (5, 2)
    one_by_one = [base.weight @ v + base.bias + 3.0 / 2 * lora.B @ (lora.A @ v) for v in x.flatten(0, 1)]
    assert_close(lora(x).flatten(0, 1), torch.stack(one_by_one))
    assert_close(lora.merged(), base.weight + 1.5 * lora.B @ lora.A)


def test_a_fused_map_is_lora_on_each_of_its_parts():
    """Values and gradients; the parts differ in width, as keys and values of grouped heads do."""
    parts = [4, 2, 3]
    fused = FusedLinear(6, parts).double()
    lora = LoraLinear(fused, rank=2, alpha=4.0)
    nn.init.normal_(lora.B)
    apart = [nn.Linear(6, size).double() for size in parts]
    weights_, biases = fused.weight.split(parts), fused.bias.split(parts)
    apart = [LoraLinear(linear, rank=2, alpha=4.0) for linear in apart]
    for one, weight, bias, A, B in zip(apart, weights_, biases, lora.A.split(2), lora.B.split(parts), strict=True):
        for own, other in ((one.weight, weight), (one.bias, bias), (one.A, A), (one.B, B)):
            own.data.copy_(other)
    x = torch.randn(5, 6, dtype=torch.float64)
    assert lora.parts == parts
    assert_close(lora(x), torch.cat([one(x) for one in apart], -1))
    assert_close(lora.merged(), torch.cat([one.merged() for one in apart]))
    pull = torch.randn(5, 9, dtype=torch.float64)
    (lora(x) * pull).sum().backward()
    (torch.cat([one(x) for one in apart], -1) * pull).sum().backward()
    assert_close(lora.A.grad, torch.cat([one.A.grad for one in apart]))
    assert_close(lora.B.grad, torch.cat([one.B.grad for one in apart]))


@every_kind
def test_at_birth_a_model_computes_exactly_what_it_did_before(model):
    before = run(model)
    linears = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    assert add_lora_(model, rank=2, alpha=4.0, dropout=0.5) == linears
    assert len(linears) == {TINY: 4 + 7, GPT: 2 * 4, LLAMA: 2 * 4}[model.config]  # qkv, out, up, down; query, kv, out
    assert torch.equal(run(model.eval()), before)


@every_kind
def test_only_a_and_b_learn_and_each_of_them_does(model):
    add_lora_(model, rank=2, alpha=4.0)
    taught(model)
    run(model).square().sum().backward()
    learning = {name for name, p in model.named_parameters() if p.grad is not None}
    assert learning == {name for name, _ in model.named_parameters() if name.split(".")[-1] in ("A", "B")}
    assert all(p.grad.abs().max() > 0 for p in lora_parameters(model))


@every_kind
def test_merged_lora_keeps_outputs_and_original_names(model):
    plain = copy.deepcopy(model)
    add_lora_(model, rank=3, alpha=6.0)
    learned = run(taught(model).eval())
    assert (learned - run(plain)).abs().max() > 0.1
    merge_(model)
    assert_close(run(model), learned)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [type(m) for m in model.modules()] == [type(m) for m in plain.modules()]
    assert all(p.requires_grad for p in model.parameters())
    changed = {n for n, t in model.state_dict().items() if not torch.equal(t, plain.state_dict()[n])}
    assert changed == {f"{n}.weight" for n, m in plain.named_modules() if isinstance(m, nn.Linear)}


def test_the_merged_state_can_be_had_while_training_goes_on(model):
    names = list(model.state_dict())
    add_lora_(model, rank=2, alpha=2.0)
    taught(model)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    state = merged_state(model)
    assert list(state) == names
    assert not any(t.requires_grad for t in state.values())
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    merge_(model)
    assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())


def test_a_model_without_lora_is_its_own_merged_self(model):
    before = {name: t.clone() for name, t in model.state_dict().items()}
    state = merged_state(model)
    merge_(model)
    assert state.keys() == before.keys() == model.state_dict().keys()
    assert all(torch.equal(t, before[name]) for name, t in state.items())


def test_patterns_choose_where(model):
    names = add_lora_(model, rank=1, alpha=1.0, targets=("decoder.*.query", "*.mlp.up"))
    assert names == ["encoder.0.mlp.up", "decoder.0.cross.query", "decoder.0.mlp.up"]
    assert [n for n, m in model.named_modules() if isinstance(m, LoraLinear)] == names
    assert len(lora_parameters(model)) == 2 * len(names)


@pytest.mark.parametrize("name", NAMES)
def test_an_optimiser_moves_and_keeps_only_what_is_trained(name, model):
    model.float()
    add_lora_(model, rank=2, alpha=4.0)
    frozen = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
    optimiser = optim.Optimiser(model, optim.Optim(name=name, lr=0.1, weight_decay=0.1))
    ours = {id(p) for p in lora_parameters(model)}
    assert {id(p) for p in optimiser.parameters} == ours
    kept = sum(t.numel() for key, t in optimiser.state_dict().items() if not key.startswith("adam.step"))
    assert kept <= 2 * sum(p.numel() for p in lora_parameters(model))
    for _ in range(2):  # the first step moves B alone: while B is zero, A has no gradient
        old = [p.clone() for p in lora_parameters(model)]
        run(model).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    assert all(not torch.equal(p, q) for p, q in zip(lora_parameters(model), old, strict=True))
    assert all(torch.equal(model.get_parameter(n), p) for n, p in frozen.items())


def test_saved_weights_go_into_another_model_with_lora(model):
    other = build(TINY).double()
    for each in (model, other):
        add_lora_(each, rank=2, alpha=4.0)
    load_weights(other, weights(taught(model)), "state.safetensors")
    assert torch.equal(run(other), run(model))


def test_dropout_falls_on_the_low_rank_path_only():
    lora = LoraLinear(nn.Linear(40, 3), rank=2, alpha=2.0, dropout=0.5)
    x = torch.randn(6, 40)
    assert torch.equal(lora(x), lora.base[0](x))  # B is zero: the plain path is not dropped
    nn.init.normal_(lora.B)
    assert not torch.equal(lora(x), lora(x))
    lora.eval()
    assert torch.equal(lora(x), lora(x))


def test_what_cannot_be_is_said(model):
    for rank, alpha, dropout in ((0, 1.0, 0.0), (2, 0.0, 0.0), (2, 1.0, 1.0)):
        with pytest.raises(ConfigError, match=f"rank {rank}, alpha {alpha} and dropout {dropout}"):
            add_lora_(model, rank, alpha, dropout)
    with pytest.raises(ConfigError, match=r"named like 'blocks.\*'; there are: encoder.0.attention.qkv"):
        add_lora_(model, 2, 2.0, targets=("blocks.*",))
    with pytest.raises(ConfigError, match="LoRA of rank 1000000; the matrices it is added to have a rank of at most"):
        add_lora_(model, 1_000_000, 2.0)
    with pytest.raises(ConfigError, match="a GRUCell has none"):
        add_lora_(nn.GRUCell(2, 2), 2, 2.0)
    assert all(p.requires_grad for p in model.parameters())  # a refusal changes nothing
    add_lora_(model, 2, 2.0)
    with pytest.raises(ConfigError, match="already"):
        add_lora_(model, 2, 2.0)
