"""The bytes a page reads, against the format written out by hand."""

import json
import struct

import numpy as np
import pytest
import torch
from tests.packed import unpack

from regard.inside.tensors import as_bytes, matrix, pack


def test_a_safetensors_file_has_the_header_in_its_metadata():
    data = pack(
        {"look": "ü"}, {"a": torch.tensor([1, 2, 3], dtype=torch.uint8), "b": torch.tensor([[0.5]])}, {"a": 0.25}
    )
    (size,) = struct.unpack("<Q", data[:8])
    about = json.loads(data[8 : 8 + size].decode("utf-8"))
    assert json.loads(about.pop("__metadata__")["header"]) == {"look": "ü", "scales": {"a": 0.25}}
    assert about == {
        "b": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]},
        "a": {"dtype": "U8", "shape": [3], "data_offsets": [4, 7]},
    }
    assert size % 8 == 0 and data[8 + size :] == struct.pack("<f", 0.5) + bytes([1, 2, 3])


def test_what_is_packed_comes_back():
    packed = {
        "u8": torch.arange(5, dtype=torch.uint8), "f16": torch.tensor([[1.5, torch.nan]]).half(),
        "f32": torch.zeros(0, 3), "i32": torch.tensor([-1, 7]).int(),
    }  # fmt: skip
    header, tensors = unpack(pack({"x": [1, None]}, packed))
    assert header["x"] == [1, None]
    for name, tensor in packed.items():
        assert tensors[name].dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(tensors[name], tensor.numpy())


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [((256, 256), "float32", (256, 256)), ((64, 1024), "float32", (64, 1024)), ((512, 512), "float16", (512, 512)),
     ((300, 300), "float16", (300, 300)), ((513, 512), "uint8", (256, 256)), ((1024, 1024), "uint8", (256, 256))],
)  # fmt: skip
def test_a_matrix_is_exact_halved_or_pooled(shape, dtype, size):
    x = torch.rand(shape)
    header, actual = unpack(pack(*matrix(x, weights=True)))
    assert (actual["matrix"].dtype, actual["matrix"].shape) == (dtype, size)
    assert (header["rows"], header["columns"], header["pooled"]) == (*shape, dtype == "uint8")
    assert actual["matrix"].nbytes <= 512 * 1024
    got = actual["matrix"].astype(np.float64) * (header["scales"]["matrix"] / 255 if dtype == "uint8" else 1)
    kept = x if dtype != "uint8" else torch.nn.functional.adaptive_max_pool2d(x[None], size)[0]
    np.testing.assert_allclose(got, kept.numpy(), atol={"float32": 0, "float16": 1e-3, "uint8": 1 / 255}[dtype])


def test_masked_scores_stay_masked_when_they_are_pooled():
    x = torch.randn(600, 600).masked_fill(torch.ones(600, 600).triu(1).bool(), torch.nan)
    header, actual = unpack(pack(*matrix(x, weights=False)))
    assert header["pooled"] and actual["matrix"].dtype == np.float16
    assert np.isnan(actual["matrix"][0, -1]) and not np.isnan(actual["matrix"][-1]).any()


def test_bytes_of_nothing_but_zeros():
    small, scale = as_bytes(torch.zeros(2, 2))
    assert small.sum() == 0 and scale == 1.0
