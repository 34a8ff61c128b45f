"""Export formats, by name."""

from regard.formats.base import Format
from regard.formats.folder import HuggingFace
from regard.formats.gguf import GgufFile
from regard.formats.onnx import Onnx

FORMATS: dict[str, Format] = {each.name: each for each in (HuggingFace(), Onnx(), GgufFile())}
