"""The contract of models that hear: Whisper, and the classifier of clips."""

import json
import math

import pytest
import torch

from regard.data.audio import STEP, padded
from regard.data.batch import Samples
from regard.models import build
from regard.models.published import load_model, to_published, weights_bytes
from regard.models.sound_classifier import SoundClassifierConfig
from regard.models.whisper import WhisperConfig
from regard.nn.taps import watch
from regard.objectives.classify import ClassifySamples

close = torch.testing.assert_close
VOCAB = 23
WHISPER = WhisperConfig(
    vocab=VOCAB, mels=6, width=16, heads=2, ffn=24, encoder_layers=2, decoder_layers=2, places=10, max_length=12
)
CLIPS = SoundClassifierConfig(
    mels=6, frames=40, width=16, heads=2, ffn=24, layers=2, dropout=0.1, labels=("no", "yes", "stop")
)
sizes = lambda model: sum(p.numel() for p in model.parameters())  # noqa: E731


@pytest.fixture
def whisper(shake):
    return shake(build(WHISPER), 3.0).double().eval()


@pytest.fixture
def hearing():
    g = torch.Generator().manual_seed(2)
    pictures = torch.randn(3, 6, 20, generator=g).double()
    return pictures, torch.randint(0, VOCAB, (3, 7), generator=g)


@pytest.fixture
def classifier(shake):
    return shake(build(CLIPS), 2.0).double().eval()


@pytest.fixture
def clips():
    """Pictures of three lengths, odd ones too, and the same padded."""
    g = torch.Generator().manual_seed(3)
    alone = [torch.randn(6, n, generator=g).double() for n in (33, 8, 17)]
    return alone, *padded(alone)


def saved(model, folder):
    (folder / "config.json").write_text(json.dumps(to_published(model.config)))
    (folder / "model.safetensors").write_bytes(weights_bytes(model))
    return load_model(folder)


# -- Whisper


def test_whisper_tiny_has_the_published_number_of_parameters():
    """37,184,256 in OpenAI's file, beside the table of places; ours has a bias for the keys of 12 attentions too."""
    with torch.device("meta"):
        assert sizes(build(WhisperConfig())) - 12 * 384 == 37_184_256


def test_the_past_does_not_depend_on_the_future(whisper, hearing):
    pictures, ids = hearing
    before = whisper(pictures, None, ids)
    poked = torch.cat((ids[:, :4], (ids[:, 4:] + 5) % VOCAB), 1)
    after = whisper(pictures, None, poked)
    close(before[:, :4], after[:, :4], rtol=0, atol=0)
    assert (before[:, 4:] - after[:, 4:]).abs().amax((1, 2)).min() > 1e-3


def test_every_word_depends_on_all_of_the_sound_and_of_no_other(whisper, hearing):
    pictures, ids = hearing
    pictures.requires_grad_(True)
    whisper(pictures, None, ids)[1, 2].square().sum().backward()
    reach = pictures.grad.abs().sum(1)
    assert (reach[1] > 0).all() and not reach[[0, 2]].any()


def test_every_parameter_of_both_gets_a_gradient(whisper, hearing, classifier, clips):
    whisper.logits(whisper(hearing[0], None, hearing[1])).square().sum().backward()
    classifier.scores(classifier(*clips[1:])).square().sum().backward()
    for model in (whisper, classifier):
        assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]


@pytest.mark.parametrize("fixed", [False, True], ids=["growing", "fixed"])
def test_decoding_in_steps_equals_decoding_at_once(whisper, hearing, fixed):
    """Hypotheses that multiply, swap and merge on the way; one sound leaves in the end."""
    pictures, _ = hearing
    state = whisper.begin(pictures, None, 3, 6)
    if fixed:
        state.fixed, state.stop = True, state.cache.keys[0].size(2)
        state.cache.clear(slice(None))
    g = torch.Generator().manual_seed(9)
    history = torch.empty(3, 1, 0, dtype=torch.long)
    for hypotheses in (1, 2, 3, 3, 2):
        parents = torch.randint(0, history.size(1), (len(history), hypotheses), generator=g)
        state.reorder(parents)
        history = history.gather(1, parents[:, :, None].expand(-1, -1, history.size(2)))
        new = torch.randint(0, VOCAB, (len(history), hypotheses), generator=g)
        history = torch.cat((history, new[:, :, None]), 2)
        stepped = whisper.step(new, state)
        for n in range(hypotheses):
            close(stepped[:, n], whisper(pictures, None, history[:, n])[:, -1])
        if hypotheses == 3 and len(pictures) == 3:
            keep = torch.tensor([0, 2])
            state.select(keep)
            pictures, history = pictures[keep], history[keep]


def test_watching_changes_nothing_and_weights_sum_to_one(whisper, hearing, classifier, clips):
    for model, args in ((whisper, (hearing[0], None, hearing[1])), (classifier, clips[1:])):
        before = model(*args)
        with watch(model, "*look") as seen:
            close(model(*args), before, rtol=0, atol=0)
        weights = [look.weights() for looks in seen.values() for look in looks]
        assert len(weights) >= 2
        for w in weights:
            close(w.sum(-1), torch.ones_like(w.sum(-1)))


def test_saving_and_loading_changes_nothing(whisper, hearing, classifier, clips, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for model, name, args in (
        (whisper, "a", (hearing[0], None, hearing[1])),
        (classifier, "b", clips[1:]),
    ):
        again = saved(model.float(), tmp_path / name).double()
        assert again.config == model.config
        close(again(*args), model.double()(*args))  # but for the bias of keys, which turns no head


# -- the classifier of clips


def test_parameters_are_counted_by_hand(classifier):
    c = CLIPS
    linear = lambda i, o: i * o + o  # noqa: E731
    stem = 3 * c.mels * c.width + c.width + 3 * c.width**2 + c.width
    layer = 4 * linear(c.width, c.width) + linear(c.width, c.ffn) + linear(c.ffn, c.width) + 4 * c.width
    assert sizes(classifier) == stem + c.layers * layer + 2 * c.width + linear(c.width, 3)


def test_clips_do_not_depend_on_padding_or_their_batch(classifier, clips):
    alone, pictures, lengths = clips
    assert pictures.shape == (3, 6, 2 * STEP) and lengths.tolist() == [33, 8, 17]
    together = classifier(pictures, lengths)
    for n, clip in enumerate(alone):
        close(classifier(clip[None]), together[n : n + 1])
    order = torch.tensor([2, 0, 1])
    close(classifier(pictures[order], lengths[order]), together[order])


def test_the_order_of_time_matters(classifier, clips):
    clip = clips[0][0][None]
    assert (classifier(clip) - classifier(clip.flip(2))).abs().max() > 1e-3


def test_the_first_loss_is_near_that_of_guessing(clips):
    batch = Samples((clips[1].float(), clips[2]), torch.tensor([0, 1, 2]), torch.arange(3).numpy())
    losses = []
    for seed in range(20):
        torch.manual_seed(seed)
        losses.append(ClassifySamples().held_out(build(CLIPS), [batch])["loss"])
    assert abs(sum(losses) / 20 - math.log(3)) < 0.6


def test_micro_batches_give_the_same_gradient(classifier, clips):
    """Summed and divided once; a half of the batch is padded as the whole was."""
    batch = Samples((clips[1], clips[2]), torch.tensor([0, 1, 2]), torch.arange(3).numpy())
    task, weight = ClassifySamples(0.1), classifier.stem.conv1.weight
    task.loss_sum(classifier, batch).backward()
    whole, weight.grad = weight.grad, None
    for half in batch.split():
        task.loss_sum(classifier, half).backward()
    close(weight.grad, whole)


def test_evaluation_is_still_and_training_is_not(classifier, clips):
    assert torch.equal(classifier(*clips[1:]), classifier(*clips[1:]))
    classifier.train()
    assert not torch.equal(classifier(*clips[1:]), classifier(*clips[1:]))
