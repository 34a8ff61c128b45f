"""The loss of pre-training equals transformers' on the same batch, values and gradients, however the batch is cut."""

import json
from itertools import islice

import numpy as np
import pytest
import torch

from regard.data.loader import Loader
from regard.data.masked import SentenceIds
from regard.data.masking import MaskedBatch, MaskedRows, Rules
from regard.models.bert import Bert, BertConfig
from regard.models.published import to_published, weights_bytes
from regard.objectives.masked_token import MaskedToken

VOCAB = 90
transformers = pytest.importorskip("transformers")


def make(tmp_path, shake, head: str):
    """Our model in float64, and theirs with the same weights."""
    config = BertConfig(vocab=VOCAB, width=32, layers=2, heads=4, ffn=48, max_length=24, dropout=0.0, head=head)
    ours = shake(Bert(config)).eval()
    (tmp_path / "config.json").write_text(json.dumps(to_published(config)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    kind = transformers.BertForPreTraining if head == "pretraining" else transformers.BertForMaskedLM
    theirs, info = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return ours.double(), theirs.double().eval()


def batch_of(next_sentence: bool, packed: bool = False) -> MaskedBatch:
    random = np.random.default_rng(0)
    text = SentenceIds.of(
        [[random.integers(5, VOCAB, random.integers(2, 10)).tolist() for _ in range(4)] for _ in range(30)]
    )
    special, inside = np.arange(VOCAB) < 5, np.zeros(VOCAB, bool)
    rules = Rules(24, special, inside, 0, 2, 3, 4, next_sentence=next_sentence)
    source = MaskedRows(text, rules, 24 * 12, packed=packed)
    rows = Loader(source, source.plan, 0)
    ragged = max(islice(rows, rows.batches_per_epoch), key=lambda b: len(set(b.host_lengths.tolist())))
    assert len(set(ragged.host_lengths.tolist())) > 2 and len(ragged) > 5
    return ragged


def asked(batch: MaskedBatch) -> dict:
    """The same for theirs: rows that were packed are taken apart, and padded again."""
    sizes = torch.from_numpy(batch.host_lengths[: len(batch)])

    def apart(x: torch.Tensor, fill: int = 0) -> torch.Tensor:
        if batch.starts is None:
            return x
        rows = list(x[0, : sizes.sum()].split(sizes.tolist()))
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)

    given = {
        "input_ids": apart(batch.ids),
        "token_type_ids": apart(batch.sentences),
        "attention_mask": (torch.arange(int(sizes.max())) < sizes[:, None]).long(),
        "labels": apart(torch.from_numpy(np.where(batch.host_targets >= 0, batch.host_targets, -100)), -100),
    }
    if batch.follows is not None:
        given["next_sentence_label"] = torch.where(batch.follows < 0, -100, batch.follows)[: len(batch)]
    return given


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("head", ["pretraining", "masked"])
def test_loss_and_gradients_equal_theirs(tmp_path, shake, head, packed):
    ours, theirs = make(tmp_path, shake, head)
    batch = batch_of(head == "pretraining", packed)
    task = MaskedToken()
    mine = task.loss_sum(ours, batch) / task.count(batch)
    yours = theirs(**asked(batch)).loss
    torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-6, check_dtype=False)
    mine.backward()
    yours.backward()
    table = theirs.bert.embeddings.word_embeddings.weight.grad
    assert ours.token.weight.grad is not None and float(table.abs().max()) > 1e-4
    torch.testing.assert_close(ours.token.weight.grad[:VOCAB], table, rtol=1e-4, atol=1e-7)
    place = theirs.bert.embeddings.position_embeddings.weight.grad
    torch.testing.assert_close(ours.get_parameter("place.table").grad, place, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_halves_add_up_to_the_whole(tmp_path, shake, packed):
    ours, _ = make(tmp_path, shake, "pretraining")
    batch, task = batch_of(True, packed), MaskedToken()
    whole = task.loss_sum(ours, batch)
    torch.testing.assert_close(sum(task.loss_sum(ours, half) for half in batch.split()), whole, rtol=1e-5, atol=1e-5)


def test_the_head_meets_the_hidden_words_alone(tmp_path, shake):
    ours, _ = make(tmp_path, shake, "pretraining")
    batch, seen = batch_of(True), []
    assert ours.masked is not None
    ours.masked.register_forward_hook(lambda _module, given, _out: seen.append(tuple(given[0].shape)))
    MaskedToken().loss_sum(ours, batch)
    assert seen == [(batch.count, 32)] and batch.count < 0.2 * batch.ids.numel()


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_held_out_numbers_worked_out_from_their_logits(tmp_path, shake, packed):
    ours, theirs = make(tmp_path, shake, "pretraining")
    batch = batch_of(True, packed)
    metrics = MaskedToken(entropy=4.0).held_out(ours, [batch, *batch.split()])
    with torch.no_grad():
        out = theirs(**{k: v for k, v in asked(batch).items() if "label" not in k})
    labels, follows = asked(batch)["labels"], asked(batch)["next_sentence_label"]
    assert metrics["unigram_entropy"] == 4.0
    hidden, real = labels >= 0, follows >= 0
    loss = -out.prediction_logits.log_softmax(-1)[hidden].gather(1, labels[hidden][:, None]).mean()
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-5)
    right = (out.prediction_logits.argmax(-1)[hidden] == labels[hidden]).double().mean()
    assert metrics["masked_accuracy"] == pytest.approx(float(right))
    pairs = (out.seq_relationship_logits.argmax(-1)[real] == follows[real]).double().mean()
    assert metrics["next_sentence_accuracy"] == pytest.approx(float(pairs))
