"""ONNX: graphs for onnxruntime and other programs, checked with onnxruntime when written."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from regard.errors import MissingExtra, WorkFailed
from regard.formats.base import BESIDE, Exported, Format, write_folder
from regard.formats.graphs import Graph, graphs_of
from regard.models.published import load_model

TRACED = {"batch": 2, "length": 3, "past": 4, "past + length": 7, "source": 5, "texts": 3}
CHECKED = {"batch": 3, "length": 5, "past": 2, "past + length": 7, "source": 4, "texts": 2}
LARGE = 1_500_000_000  # bytes of weights beyond which they get their own file: protobuf holds at most 2 GB
TOLERANCE = 1e-3  # of the largest number of an output


class Onnx(Format):
    """A folder with `model.onnx`, or separate encoder and decoder, and the tokenizer and labels."""

    name = "onnx"

    def write(self, source: Path, target: Path, dtype: str) -> Exported:
        need_onnx()
        graphs = graphs_of(load_model(source), source)
        differences: dict[str, float] = {}

        def more(draft: Path) -> None:
            for graph in graphs:
                write_graph(graph, draft / graph.file)
                differences[graph.file] = check_graph(graph, draft / graph.file)

        files = write_folder(source, target, list(BESIDE), more)
        notes = [
            f"{file}: onnxruntime's outputs differ from ours by at most {differences[file]:.1e}" for file in differences
        ]
        return Exported(target, files, notes, {"max_difference": differences})


def need_onnx() -> Any:
    """onnxruntime; `MissingExtra` unless it and what writes the files are installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtra("ONNX files", "export") from None
    return onnxruntime


def write_graph(graph: Graph, path: Path) -> None:
    """Trace a graph and write it; named axes may have any size."""
    example, auto = graph.example(TRACED), torch.export.Dim.AUTO
    axes = [{i: auto for i, axis in enumerate(shape) if isinstance(axis, str)} for shape, _ in graph.inputs.values()]
    with quiet(), torch.no_grad():
        program: Any = torch.onnx.export(
            graph.eval(),
            tuple(example.values()),
            input_names=list(graph.inputs),
            output_names=graph.outputs,
            dynamic_shapes=(tuple(axes),),
            dynamo=True,
            verbose=False,
        )
        size = sum(p.numel() * p.element_size() for p in graph.parameters())
        program.save(path, external_data=size > LARGE)


def check_graph(graph: Graph, path: Path) -> float:
    """The largest difference between onnxruntime's outputs and ours, on axes of other sizes than traced."""
    example = graph.example(CHECKED)
    theirs = open_session(path).run(graph.outputs, {name: tensor.numpy() for name, tensor in example.items()})
    with torch.no_grad():
        ours = graph(*example.values())
    largest = 0.0
    for got, expected in zip(theirs, ours if isinstance(ours, tuple) else (ours,), strict=True):
        difference = float((torch.from_numpy(got) - expected).abs().max())
        if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise WorkFailed(f"{path.name}: onnxruntime's outputs differ from ours by {difference:.1e}")
        largest = max(largest, difference)
    return largest


def open_session(path: Path, threads: int = 0) -> Any:
    """An onnxruntime session for a file; `threads` 0: as many as torch has."""
    onnxruntime = need_onnx()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    options.log_severity_level = 3  # errors only
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's own messages."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
