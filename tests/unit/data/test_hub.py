"""Names of the hub, and which files of a repository are fetched."""

import pytest

from regard.data.hub import Reference, data_files, model_files, parse
from regard.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf:openai-community/gpt2", Reference("openai-community/gpt2")),
        ("gpt2", Reference("gpt2")),
        ("hf:Qwen/Qwen2.5-0.5B@v1.0", Reference("Qwen/Qwen2.5-0.5B", "v1.0")),
        ("hf:a/b/data/x.csv", Reference("a/b", "main", "data/x.csv")),
        ("hf:a/b@1f2e/x.csv", Reference("a/b", "1f2e", "x.csv")),
    ],
)
def test_names_are_parsed_and_written_again(text, expected):
    assert parse(text) == expected
    assert str(expected).removeprefix("hf:") == text.removeprefix("hf:")


@pytest.mark.parametrize("text", ["hf:", "hf:/a", "hf:a//b", "hf:a/b@", "hf:a b/c", "hf:a/../b", "hf:-a/b"])
def test_what_is_no_name_is_refused(text):
    with pytest.raises(ConfigError, match="expected hf:OWNER/NAME"):
        parse(text)


def chosen(*files):
    return model_files(Reference("a/b"), list(files))


def test_safetensors_come_before_pickles():
    both = ("config.json", "pytorch_model.bin", "model.safetensors", "README.md", "tf_model.h5", "onnx/config.json")
    assert chosen(*both) == ["config.json", "README.md", "model.safetensors"]
    assert chosen("config.json", "pytorch_model.bin") == ["config.json", "pytorch_model.bin"]


def test_all_shards_are_fetched_with_their_index():
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    files = chosen("model.safetensors.index.json", "1_Pooling/config.json", *shards, "original/model-1.safetensors")
    assert files == ["model.safetensors.index.json", "1_Pooling/config.json", *shards]


def test_a_repository_of_gguf_files_names_one():
    with pytest.raises(DataError, match=r"name a GGUF file: hf:a/b/tiny-q8\.gguf"):
        chosen("tiny-q8.gguf", "README.md")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["README.md", "data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"], "data/train-0"),
        (["reviews.csv"], "reviews.csv"),
        (["train.jsonl", "valid.jsonl", "dataset_infos.json"], "train.jsonl"),
    ],
)
def test_the_one_table_to_train_on_is_chosen(files, expected):
    (table,) = data_files(Reference("a/b", kind="dataset"), files)
    assert table.startswith(expected)


def test_parts_of_one_table_are_chosen_together():
    name = Reference("a/b", kind="dataset")
    parts = ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"]
    assert data_files(name, [parts[1], "data/test-00000-of-00001.parquet", parts[0]]) == parts
    with pytest.raises(DataError, match="has 3 tables"):
        data_files(name, [*parts, "train.csv"])
