"""What the studio sends, read back."""

import json
from typing import Any

import numpy as np
from safetensors.numpy import load


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header in the metadata of a safetensors file, and its tensors."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["header"]), load(data)
