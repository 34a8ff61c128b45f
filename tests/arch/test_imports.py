"""What may be imported, and when. (Which of our modules may import which is import-linter's, in pyproject.toml.)"""

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

# The core dependencies that every machine we train and measure on has. The rest is imported inside the function that
# needs it, so that training, scoring and benchmarks run where it is missing.
CORE = {"numpy", "sacrebleu", "safetensors", "tokenizers", "torch", "typer"}
# What we compare with: a product that imported these would be compared with itself.
ORACLES = {"ctranslate2", "hypothesis", "openai", "pandas", "polars", "pytest", "transformers"}
# What makes starting slow. Help and lists need none of it.
HEAVY = ("matplotlib", "numpy", "pyarrow", "sacrebleu", "safetensors", "tokenizers", "torch", "transformers")


def imported(tree: ast.AST, anywhere: bool) -> Iterator[str]:
    """Top-level names of the packages a module imports: anywhere in it, or only those it cannot be loaded without."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]
        elif anywhere or not (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or for_type_checkers(node)):
            yield from imported(node, anywhere)


def for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def others(tree: ast.AST, anywhere: bool) -> set[str]:
    return set(imported(tree, anywhere)) - set(sys.stdlib_module_names) - {"regard"}


# Imported inside the function that needs it, as a whole: a kernel cannot be written without its language,
# nor a route without its framework.
WHOLE = {
    "nn/batched.py": {"triton"},
    "nn/decoding.py": {"triton"},
    "nn/kernels.py": {"triton"},
    "nn/kernels8.py": {"triton"},
    "serve/api/app.py": {"fastapi", "starlette"},
    "serve/api/audio.py": {"fastapi", "starlette"},
    "serve/api/bodies.py": {"pydantic"},
    "serve/api/describe.py": {"fastapi", "pydantic"},
    "serve/api/manage.py": {"fastapi"},
    "serve/api/metrics.py": {"prometheus_client"},
    "serve/api/openai.py": {"fastapi"},
    "serve/api/predict.py": {"fastapi"},
    "serve/api/protocol.py": {"uvicorn"},
    "serve/api/studio.py": {"fastapi"},
    "serve/api/while_connected.py": {"fastapi"},
    "serve/app.py": {"fastapi", "starlette"},
    "serve/routes.py": {"fastapi", "pydantic"},
}


def test_modules_load_with_the_core_packages_alone(trees):
    extras = {path: others(tree, anywhere=False) - CORE - WHOLE.get(str(path), set()) for path, tree in trees.items()}
    wrong = {path: extra for path, extra in extras.items() if extra}
    assert not wrong, f"import these inside the function that needs them: {wrong}"


def test_the_product_never_imports_what_it_is_compared_with(trees):
    wrong = {path: actual for path, tree in trees.items() if (actual := others(tree, anywhere=True) & ORACLES)}
    assert not wrong, wrong


def test_typer_belongs_to_the_command_line(trees):
    wrong = [p for p, tree in trees.items() if "typer" in others(tree, anywhere=True) and not p.startswith("cli/")]
    assert not wrong, wrong


def loaded_after(code: str) -> set[str]:
    """The modules a fresh interpreter holds after running `code`."""
    report = "\nimport sys; print('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_import_regard_imports_next_to_nothing():
    ours = {m for m in loaded_after("import regard") if m.split(".")[0] == "regard"}
    assert ours == {"regard"}


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        "train --help",
        "studio --help",
        "serve --help",
        "translate --help",
        "data list",
        "model list",
    ],
)
def test_help_does_not_wait_for_torch(words):
    code = f"""
import sys
from regard.cli.main import main
sys.argv = ["regard", *{words.split()!r}]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""
    heavy = loaded_after(code) & set(HEAVY)
    assert not heavy, f"`regard {words}` imported {sorted(heavy)}"


def test_reading_a_model_does_not_load_torchs_compiler():
    code = """
from regard.models import BertConfig, GPTConfig, LlamaConfig, TransformerConfig, build
from regard.models.published import check_fit, published_weights
same = dict(vocab=9, width=8, heads=2, ffn=8)
for config in (
    TransformerConfig(**same, encoder_layers=1, decoder_layers=1),
    GPTConfig(vocab=9, width=8, heads=2, layers=1, context=8),
    LlamaConfig(**same, kv_heads=1, layers=1, context=8),
    BertConfig(**same, layers=1, max_length=8),
):
    check_fit(config, {name: tuple(t.shape) for name, t in published_weights(build(config)).items()}, "here")
"""
    assert not loaded_after(code) & {"torch._dynamo", "sympy"}
