"""Our GPT is transformers' GPT2LMHeadModel: same folder, same logits, same gradients, with padding and in chunks."""

import json

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

from regard.errors import CheckpointError
from regard.models import SIZES, build, config_for
from regard.models.gpt import GPTConfig
from regard.models.published import load_model, to_published, weights_bytes
from regard.nn.init import skip_init
from regard.training.optim import Optimiser
from regard.training.settings import Optim

close = torch.testing.assert_close
VOCAB = 83  # padded to 128 rows
CONFIGS = {
    "small": GPTConfig(vocab=VOCAB, width=32, layers=3, heads=4, ffn=128, context=40),
    "odd": GPTConfig(vocab=VOCAB, width=30, layers=1, heads=5, ffn=17, context=31, dropout=0.1),
}


@pytest.fixture(params=CONFIGS, ids=list(CONFIGS))
def ours(request, shake):
    return shake(build(CONFIGS[request.param]), 4.0).eval()


@pytest.fixture
def folder(ours, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(to_published(ours.config, eos=0)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    return tmp_path


@pytest.fixture
def theirs(folder):
    model, info = transformers.GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.double().eval()


@pytest.fixture
def ids():
    return torch.randint(0, VOCAB, (3, 20))


def test_logits_and_gradients_are_equal(ours, theirs, ids):
    ours = ours.double()
    mine, other = ours.logits(ours(ids)), theirs(ids).logits
    close(mine, other)
    mine.square().mean().backward()
    other.square().mean().backward()
    block, layer = ours.blocks[-1], theirs.transformer.h[-1]
    close(block.attention.qkv.weight.grad, layer.attn.c_attn.weight.grad.T)
    close(block.attention.qkv.bias.grad, layer.attn.c_attn.bias.grad)
    close(block.mlp.down.weight.grad, layer.mlp.c_proj.weight.grad.T)
    close(block.norm1.weight.grad, layer.ln_1.weight.grad)
    close(ours.token.weight.grad[:VOCAB], theirs.transformer.wte.weight.grad)
    close(ours.place.table.grad, theirs.transformer.wpe.weight.grad)
    assert ours.token.weight.grad[VOCAB:].abs().max() == 0


def test_steps_of_training_are_theirs_with_torchs_adamw(ours, theirs):
    """Gradients, clipping, which weights decay, and the steps themselves: forty batches with a pattern, in float64."""
    adam = Optim(name="adamw", lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, clip=0.5)
    optimiser = Optimiser(ours.double(), adam)
    groups = [[p for p in theirs.parameters() if (p.ndim > 1) == many] for many in (True, False)]
    decays = [dict(params=part, weight_decay=decay) for part, decay in zip(groups, (0.1, 0.0), strict=True)]
    reference = torch.optim.AdamW(decays, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    g, mine, other = torch.Generator().manual_seed(0), [], []
    for _ in range(40):
        ids = (torch.randint(0, VOCAB, (3, 1), generator=g) + 7 * torch.arange(21)) % VOCAB
        loss = F.cross_entropy(ours.logits(ours(ids[:, :-1])).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimiser.clip()
        optimiser.step()
        optimiser.zero_grad()
        mine.append(loss.item())
        loss = F.cross_entropy(theirs(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())  # their own is float32
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        reference.step()
        reference.zero_grad()
        other.append(loss.item())
    assert mine[-1] < mine[0] - 0.5, "something was learned"
    close(torch.tensor(mine).double(), torch.tensor(other).double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_ragged_rows_are_theirs_with_padding_on_either_side(ours, theirs, ids, side):
    ours, lengths = ours.double(), torch.tensor([20, 6, 13])
    there = torch.arange(20) < lengths[:, None]
    given, place = ids.clone(), torch.arange(20).expand(3, -1)
    if side == "left":  # theirs: the words at the right end
        there, place = there.flip(1), (torch.arange(20) - (20 - lengths)[:, None]).clamp(min=0)
        for b, n in enumerate(lengths):
            given[b, 20 - n :] = ids[b, :n]
    other = theirs(given, attention_mask=there.long(), position_ids=place).logits[there]
    state = ours.begin(3, 24)
    mine = ours.logits(ours.read(ids, state, lengths))[torch.arange(20) < lengths[:, None]]
    close(mine, other)
    assert state.places.tolist() == [20, 6, 13]


def test_reading_in_chunks_is_their_cache_in_chunks(ours, theirs, ids):
    ours = ours.double()
    state, past = ours.begin(3, 20), transformers.DynamicCache()
    for chunk in ids.split([7, 1, 1, 8, 3], 1):
        close(ours.logits(ours.read(chunk, state)), theirs(chunk, past_key_values=past).logits)


def test_our_export_is_imported_unchanged(ours, folder, ids):
    again = load_model(folder)
    assert again.config == ours.config
    assert torch.equal(again.logits(again(ids)), ours.logits(ours(ids)))
    assert again.head is again.token.weight and not again.token.weight[VOCAB:].any()


def test_a_folder_that_transformers_wrote_is_read(theirs, ours, tmp_path, ids):
    theirs.float().save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert (tmp_path / "theirs/model.safetensors.index.json").exists() or ours.config.layers == 1
    again = load_model(tmp_path / "theirs")
    close(again.logits(again(ids)), ours.logits(ours(ids)))


def test_old_files_without_prefix_and_with_masks_are_read(folder, ours, ids):
    state = {n.removeprefix("transformer."): t for n, t in load_file(folder / "model.safetensors").items()}
    state["h.0.attn.bias"] = torch.ones(1, 1, 40, 40).tril()
    state["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(state, folder / "model.safetensors")
    again = load_model(folder)
    assert torch.equal(again.logits(again(ids)), ours.logits(ours(ids)))


def damage(folder, edit):
    state = load_file(folder / "model.safetensors")
    edit(state)
    save_file(state, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda s: s["transformer.h.0.mlp.c_fc.weight"].view(-1)[5].fill_(torch.nan), r"h\.0\.mlp\.c_fc\.weight.*NaN"),
        (lambda s: s.pop("transformer.h.0.ln_1.bias"), r"does not fit.*h\.0\.ln_1\.bias"),
        (lambda s: s.update(score=torch.ones(2)), r"does not fit.*unexpected tensors: score"),
        (lambda s: s.update({"transformer.wpe.weight": torch.ones(3, 2)}), r"does not fit"),
    ],
    ids=["NaN", "missing", "unexpected", "shape"],
)
def test_damaged_weights_are_named(folder, edit, says):
    damage(folder, edit)
    with pytest.raises(CheckpointError, match=says):
        load_model(folder)


def test_a_shard_that_is_missing_is_named(theirs, tmp_path):
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    shards = sorted((tmp_path / "theirs").glob("model-*.safetensors"))
    if len(shards) > 1:
        shards[1].unlink()
        with pytest.raises(CheckpointError, match=shards[1].name):
            load_model(tmp_path / "theirs")


@pytest.mark.parametrize(
    "setting",
    [{"tie_word_embeddings": False}, {"activation_function": "relu"}, {"scale_attn_by_inverse_layer_idx": True}],
    ids=str,
)
def test_what_we_do_not_compute_is_refused(folder, setting):
    values = json.loads((folder / "config.json").read_text()) | setting
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=next(iter(setting))):
        load_model(folder)


def test_published_sizes_have_the_published_number_of_parameters():
    counts = {"gpt2": 124_439_808, "medium": 354_823_168, "large": 774_030_080, "xl": 1_557_611_200}
    with torch.device("meta"), skip_init():  # to count, no numbers are needed
        assert {size: build(config_for("gpt", size, 50257, task="lm")).size() for size in counts} == counts
    assert set(counts) < set(SIZES["gpt"])


def test_weights_are_drawn_as_theirs_are():
    """Radford et al.: 0.02, and smaller by √(2·layers) where a layer adds to the stream. Padding starts at zero."""
    torch.manual_seed(1)
    config = GPTConfig(vocab=1000, width=128, layers=8, heads=4, ffn=512, context=64)
    ours = build(config)
    published = to_published(config, eos=0)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**published))
    block, layer = ours.blocks[3], theirs.transformer.h[3]
    for mine, other in (
        (block.attention.qkv.weight, layer.attn.c_attn.weight),
        (block.attention.out.weight, layer.attn.c_proj.weight),
        (block.mlp.up.weight, layer.mlp.c_fc.weight),
        (block.mlp.down.weight, layer.mlp.c_proj.weight),
        (ours.token.weight[:1000], theirs.transformer.wte.weight),
        (ours.place.table, theirs.transformer.wpe.weight),
    ):
        assert mine.std().item() == pytest.approx(other.std().item(), rel=0.05)
    assert not ours.token.weight[1000:].any() and not block.attention.qkv.bias.any()
