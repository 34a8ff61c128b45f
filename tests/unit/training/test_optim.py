"""Adam step by step beside torch's; Muon beside singular values, one matrix at a time, and torch's own Muon."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.errors import CheckpointError, ConfigError
from regard.models import Seq2SeqConfig, TransformerConfig
from regard.models import build as build_model
from regard.models.captioner import ShowAttendTellConfig
from regard.models.rnn_classifier import RecurrentClassifierConfig
from regard.models.rnn_lm import RecurrentLMConfig
from regard.models.series import SeriesRecurrentConfig
from regard.models.vit import ViTConfig
from regard.training.muon import QUINTICS, by_products, hidden_matrices, orthogonal, pieces
from regard.training.optim import Optimiser
from regard.training.settings import NAMES, Optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(7, 6)
        self.up, self.mid, self.down = nn.Linear(6, 24), nn.Linear(24, 24), nn.Linear(24, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, ids):
        x = self.token(ids)
        return self.norm(x + self.down(torch.relu(self.mid(torch.relu(self.up(x)))))) @ self.token.weight.T


def learn(model: nn.Module, seed: int) -> None:
    ids = torch.randint(0, 7, (5, 4), generator=torch.Generator().manual_seed(seed))
    nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten().roll(1)).backward()


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_is_torchs_step_by_step(name: str):
    ours, theirs = Net(), Net()
    theirs.load_state_dict(ours.state_dict())
    optim = Optim(name=name, lr=0.01, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.1, clip=0.5)
    optimiser = Optimiser(ours, optim)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    matrices = [p for p in theirs.parameters() if p.ndim > 1]
    vectors = [p for p in theirs.parameters() if p.ndim == 1]
    groups = [dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)]
    reference = kind(groups, lr=0.01, betas=(0.8, 0.9), eps=1e-8, foreach=False, fused=False)
    for step in range(6):
        optimiser.set_lr(0.01 / (step + 1))
        for group in reference.param_groups:
            group["lr"] = 0.01 / (step + 1)
        learn(ours, step)
        learn(theirs, step)
        assert_close(optimiser.clip(), nn.utils.clip_grad_norm_(theirs.parameters(), 0.5))
        optimiser.step()
        reference.step()
        optimiser.zero_grad()
        reference.zero_grad()
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("iterations", list(QUINTICS))
@pytest.mark.parametrize("shape", [(16, 16), (16, 32), (16, 64)])
def test_the_singular_values_of_an_update_are_near_one(shape, iterations: int):
    x = torch.randn(3, *shape)
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    s = torch.linspace(0.04, 1, 16).expand(3, -1)  # a spread of 25 between directions
    x = u @ torch.diag_embed(s) @ v
    moved = orthogonal(x, iterations)
    values = torch.linalg.svdvals(moved)
    assert values.min() > 0.67 and values.max() < 1.28
    assert_close(
        u.mT @ moved @ v.mT, torch.diag_embed((u.mT @ moved @ v.mT).diagonal(dim1=1, dim2=2)), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("iterations", "low", "high", "least"), [(5, 0.68, 1.21, 2e-3), (4, 0.79, 1.21, 3e-3), (3, 0.73, 1.27, 1e-2)]
)
def test_the_quintics_do_what_is_written_beside_them(iterations, low, high, least):
    s = torch.logspace(torch.log10(torch.tensor(least)).item(), 0, 100_000, dtype=torch.float64)
    for a, b, c in QUINTICS[iterations]:
        s = a * s + b * s**3 + c * s**5
    assert low - 0.005 < s.min() and s.max() < high + 0.005


@pytest.mark.parametrize("iterations", list(QUINTICS))
def test_products_alone_give_the_same(iterations: int):
    x = torch.randn(4, 8, 40, dtype=torch.float64)
    x = x / x.norm(dim=(-2, -1), keepdim=True)
    plain = x
    for a, b, c in QUINTICS[iterations]:
        square = plain @ plain.mT
        plain = a * plain + (b * square + c * square @ square) @ plain
    assert_close(by_products(x, iterations), plain)
    assert_close(orthogonal(x.float(), iterations), plain.float(), atol=1e-4, rtol=1e-4)


def test_stacked_is_one_by_one():
    x = torch.randn(5, 6, 24)
    assert_close(orthogonal(x), torch.cat([orthogonal(one[None]) for one in x]), atol=1e-5, rtol=1e-4)


def test_muon_is_torchs_up_to_its_half_precision():
    """torch's Muon orthogonalises in bf16, ours in fp32 on a CPU: updates agree to a few percent.

    Gradients are random, hence of full rank: what bf16 makes of a direction that is not there is noise.
    """
    ours, theirs = Net(), Net()
    theirs.load_state_dict(ours.state_dict())
    before = {name: p.detach().clone() for name, p in ours.named_parameters()}
    optimiser = Optimiser(ours, Optim(name="muon", lr=0.02, momentum=0.9, weight_decay=0.1, clip=0))
    hidden = {name: p for name, p in theirs.named_parameters() if name in ("up.weight", "mid.weight", "down.weight")}
    reference = torch.optim.Muon(list(hidden.values()), lr=0.02, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        optimiser.step()
        reference.step()
        optimiser.zero_grad()
    for name, p in hidden.items():
        mine, other = ours.get_parameter(name) - before[name], p - before[name]
        assert (mine - other).norm() < 0.05 * other.norm(), name


def test_what_muon_is_for():
    model = build_model(TransformerConfig(vocab=11, width=8, heads=2, ffn=16, encoder_layers=1, decoder_layers=1))
    hidden = hidden_matrices(model)
    names = {name for name, p in model.named_parameters() if p.ndim == 2 and "token" not in name}
    assert hidden.keys() == names
    assert {name: parts for name, parts in hidden.items() if len(parts) > 1} == {
        "encoder.0.attention.qkv.weight": [8, 8, 8],
        "decoder.0.attention.qkv.weight": [8, 8, 8],
        "decoder.0.cross.kv.weight": [8, 8],
    }
    recurrent = hidden_matrices(build_model(Seq2SeqConfig(vocab=11, embedding=8, width=8)))
    assert recurrent and not any("embedding" in name or "token" in name for name in recurrent)
    assert any(len(parts) == 4 for parts in recurrent.values()), "an LSTM's four gates are four maps"


CELLS = {"rnn": 1, "gru": 3, "lstm": 4}  # gates
RECURRENT = {
    **{f"lm-{cell}": RecurrentLMConfig(vocab=11, cell=cell, embedding=6, width=8, layers=2) for cell in CELLS},
    **{
        f"translate-{cell}": Seq2SeqConfig(vocab=11, cell=cell, embedding=6, width=8, encoder_layers=2)
        for cell in CELLS
    },
    **{f"classify-{cell}": RecurrentClassifierConfig(vocab=11, cell=cell, embedding=6, width=8) for cell in CELLS},
    **{f"series-{cell}": SeriesRecurrentConfig(cell=cell, width=8, layers=2, labels=("a", "b")) for cell in CELLS},
    **{
        f"caption-{cell}": ShowAttendTellConfig(
            vocab=11, image=8, patch=4, regions=4, heads=2, ffn=8, encoder_layers=1, embedding=6, width=8, cell=cell
        )
        for cell in CELLS
    },
}


@pytest.mark.parametrize("name", RECURRENT)
def test_muon_sees_each_gate_as_a_matrix_of_its_own(name):
    """Of every map into the gates, in every family: stacked gates are as many maps of `width` rows."""
    model, gates = build_model(RECURRENT[name]), CELLS[name.split("-")[1]]
    hidden = hidden_matrices(model)
    maps = {n: p for n, p in model.named_parameters() if p.ndim == 2 and n.split(".")[-1].startswith(("W_", "weight_"))}
    maps = {n: p for n, p in maps.items() if not n.endswith("W_hy")}  # the head
    assert len(maps) >= 2 and all(p.size(0) == gates * 8 for p in maps.values())
    assert {n: hidden[n] for n in maps} == {n: [8] * gates for n in maps}


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_muon_knows_the_gates_of_torchs_own_layers(kind):
    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[kind]
    hidden = hidden_matrices(nn.ModuleDict({"net": kind(6, 8, num_layers=2, bidirectional=True)}))
    assert len(hidden) == 8 and all(parts == [8] * gates for parts in hidden.values())


def test_fused_maps_and_blocks_are_taken_apart():
    def cut(parts: list[int], block: int) -> list[tuple]:
        return [(x.start, x.stop, x.count, x.shape) for x in pieces(nn.Parameter(torch.zeros(10, 4)), parts, block)]

    assert cut([6, 4], 0) == [(0, 6, 1, (4, 6)), (6, 10, 1, (4, 4))]
    assert cut([6, 4], 4) == [(0, 4, 1, (4, 4)), (4, 6, 1, (2, 4)), (6, 10, 1, (4, 4))]
    assert cut([5, 5], 0) == [(0, 10, 2, (4, 5))]
    assert cut([10], 3) == [(0, 9, 3, (3, 4)), (9, 10, 1, (1, 4))]


@pytest.mark.parametrize("block", [0, 3])
def test_every_part_of_a_fused_map_moves_by_itself(block: int):
    model = nn.Linear(6, 18, bias=False)
    model.parts = [6, 6, 6]
    before = model.weight.detach().clone()
    optimiser = Optimiser(
        nn.ModuleDict({"qkv": model, "other": nn.Linear(2, 2)}), Optim(name="muon", lr=1.0, block=block)
    )
    model.weight.grad = torch.cat([torch.randn(6, 6), 1e3 * torch.randn(6, 6), 1e-3 * torch.randn(6, 6)])
    optimiser.step()
    moved = (before - model.weight.detach()).split(block or 6)
    for part in moved:
        assert_close(torch.linalg.svdvals(part).mean(), torch.tensor(0.95), atol=0.2, rtol=0)


@pytest.mark.parametrize("name", ["adamw", "adam", "muon"])
def test_state_comes_back(name: str):
    one, two = Net(), Net()
    optim = Optim(name=name, lr=0.01, weight_decay=0.01)
    first, second = Optimiser(one, optim), Optimiser(two, optim)
    for step in range(3):
        learn(one, step)
        first.step()
        first.zero_grad()
    two.load_state_dict(one.state_dict())
    second.load_state_dict({name: t.clone() for name, t in first.state_dict().items()})
    for model, optimiser in ((one, first), (two, second)):
        learn(model, 9)
        optimiser.step()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    for other in (Optim(name="adam" if name == "muon" else "muon"), Optim(name="muon", block=2)):
        with pytest.raises(CheckpointError, match="saved optimiser differs"):
            Optimiser(Net(), other).load_state_dict(first.state_dict())


@pytest.mark.parametrize("name", ["adamw", "adam", "muon"])
def test_a_bad_step_changes_nothing_at_all(name: str):
    model = Net()
    optimiser = Optimiser(model, Optim(name=name, lr=0.01, weight_decay=0.1))
    learn(model, 0)
    optimiser.step(torch.tensor(0.0))
    before = [t.clone() for t in (*model.parameters(), *optimiser.state_dict().values())]
    for p in model.parameters():
        p.grad = torch.full_like(p, float("nan"))
    optimiser.step(torch.tensor(1.0))
    after = [*model.parameters(), *optimiser.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["adamw", "adam", "muon"])
@pytest.mark.parametrize("bad", [0.0, 1.0])
def test_a_bad_step_decided_on_a_device_is_the_same(name: str, bad: float):
    """The path a GPU takes, walked on the CPU: no branch, the flag goes into the arithmetic."""
    optim = Optim(name=name, lr=0.01, weight_decay=0.1)
    branching, flowing = Net(), Net()
    flowing.load_state_dict(branching.state_dict())
    one, two = Optimiser(branching, optim), Optimiser(flowing, optim)
    for step in range(3):
        learn(branching, step)
        learn(flowing, step)
        if bad and step == 1:
            for p in (*branching.parameters(), *flowing.parameters()):
                p.grad = torch.full_like(p, float("inf"))
        flag = torch.tensor(bad if step == 1 else 0.0)
        one.step(flag)
        two.adam.step(flag)
        if two.muon:
            two.muon.step(flag)
        one.zero_grad()
        two.zero_grad()
    for a, b in zip(
        (*branching.parameters(), *one.state_dict().values()),
        (*flowing.parameters(), *two.state_dict().values()),
        strict=True,
    ):
        assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_adam_follows_muon_in_proportion():
    optimiser = Optimiser(Net(), Optim(name="muon", lr=0.02, adam_lr=0.003))
    optimiser.set_lr(0.01)
    assert optimiser.muon.lr.item() == pytest.approx(0.01)
    assert optimiser.adam.rates[0].item() == pytest.approx(0.0015)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(name="muom"), "did you mean 'muon'"),
        (dict(lr=0), "optim.lr is 0"),
        (dict(betas=(0.9, 1.0)), "optim.betas"),
        (dict(clip=-1), "optim.clip"),
        (dict(iterations=7), "there are: 3, 4, 5"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        Optim(**settings)


def test_names_are_those_we_Optimiser():
    for name in NAMES:
        assert Optimiser(Net(), Optim(name=name)).optim.name == name


VIT = ViTConfig(image=8, patch=4, width=8, layers=3, heads=2, ffn=12)
PARTS = ("stem.weight", "layers.0.mlp.up.weight", "layers.2.mlp.up.weight", "classifier.weight")


def moved_by(optim: Optim, done: float) -> dict[str, float]:
    """How far a first step of Adam, which is as long as the rate, moves some parts of a ViT."""
    torch.manual_seed(0)
    model = build_model(VIT)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = Optimiser(model, optim)
    optimiser.set_lr(0.01, done)
    model.scores(model(torch.randn(4, 3, 8, 8))).square().sum().backward()
    optimiser.step()
    return {name: float((model.get_parameter(name).detach() - before[name]).abs().max()) for name in PARTS}


def test_lower_layers_learn_more_slowly():
    """Three layers, the head above and the patches below them: exponents 4, 3, 1 and 0."""
    moves = moved_by(Optim(layer_decay=0.5, eps=1e-12, clip=0), done=1.0)
    assert list(moves.values()) == pytest.approx([0.01 * 0.5**n for n in (4, 3, 1, 0)], rel=1e-3)


def test_layers_are_unfrozen_from_the_head_down():
    for done, learning in ((0.0, 1), (0.13, 2), (0.4, 3), (0.5, 4), (1.0, 4)):
        moves = moved_by(Optim(unfreeze=0.5, clip=0), done)
        assert [move > 0 for move in moves.values()] == [False] * (4 - learning) + [True] * learning, done


def test_muon_has_one_rate_for_all_layers():
    with pytest.raises(ConfigError, match="adamw"):
        Optim(name="muon", layer_decay=0.5)
