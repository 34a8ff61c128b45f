"""The bytes a page reads, against the layout written out by hand."""

import json
import struct

import numpy as np
import pytest
import torch

from regard.inside.container import as_bytes, matrix, pack, unpack


def test_the_layout_is_the_one_that_is_promised():
    data = pack(
        {"look": "ü"}, {"a": torch.tensor([1, 2, 3], dtype=torch.uint8), "b": torch.tensor([[0.5]])}, {"a": 0.25}
    )
    (size,) = struct.unpack("<I", data[:4])
    header = json.loads(data[4 : 4 + size].decode("utf-8"))
    assert header["look"] == "ü"
    assert header["tensors"]["a"] == {"dtype": "u8", "shape": [3], "offset": 0, "scale": 0.25}
    assert header["tensors"]["b"] == {"dtype": "f32", "shape": [1, 1], "offset": 8}
    start = (4 + size + 7) // 8 * 8
    assert data[4 + size : start] == bytes(start - 4 - size)
    assert data[start : start + 8] == bytes([1, 2, 3, 0, 0, 0, 0, 0])
    assert data[start + 8 :] == struct.pack("<f", 0.5) + bytes(4)


def test_what_is_packed_comes_back():
    given = {
        "u8": np.arange(5, dtype=np.uint8), "f16": np.array([[1.5, np.nan]], np.float16),
        "f32": np.zeros((0, 3), np.float32), "i32": np.array([-1, 7], np.int32),
    }  # fmt: skip
    header, found = unpack(pack({"x": [1, None]}, given, {}))
    assert header["x"] == [1, None]
    for name, array in given.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [((256, 256), "f32", (256, 256)), ((64, 1024), "f32", (64, 1024)), ((512, 512), "f16", (512, 512)),
     ((300, 300), "f16", (300, 300)), ((513, 512), "u8", (256, 256)), ((1024, 1024), "u8", (256, 256))],
)  # fmt: skip
def test_a_matrix_is_exact_halved_or_pooled(shape, dtype, size):
    x = torch.rand(shape)
    header, found = unpack(pack(*matrix(x, weights=True)))
    about = header["tensors"]["matrix"]
    assert (about["dtype"], tuple(about["shape"])) == (dtype, size)
    assert (header["rows"], header["columns"], header["pooled"]) == (*shape, dtype == "u8")
    assert found["matrix"].nbytes <= 512 * 1024
    got = found["matrix"].astype(np.float64) * (about["scale"] / 255 if dtype == "u8" else 1)
    kept = x if dtype != "u8" else torch.nn.functional.adaptive_max_pool2d(x[None], size)[0]
    np.testing.assert_allclose(got, kept.numpy(), atol={"f32": 0, "f16": 1e-3, "u8": 1 / 255}[dtype])


def test_masked_scores_stay_masked_when_they_are_pooled():
    x = torch.randn(600, 600).masked_fill(torch.ones(600, 600).triu(1).bool(), torch.nan)
    header, found = unpack(pack(*matrix(x, weights=False)))
    assert header["pooled"] and header["tensors"]["matrix"]["dtype"] == "f16"
    assert np.isnan(found["matrix"][0, -1]) and not np.isnan(found["matrix"][-1]).any()


def test_bytes_of_nothing_but_zeros():
    small, scale = as_bytes(torch.zeros(2, 2))
    assert small.sum() == 0 and scale == 1.0
