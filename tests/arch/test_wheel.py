"""What a user installs: sdist, the wheel made from it, and that wheel started outside the checkout."""

import os
import subprocess
import sys
import zipfile

import regard


def run(*words: object, **where: object) -> str:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120, **where)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_built_from_the_sdist_starts(root, tmp_path):
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, root)  # sdist, then wheel from sdist
    assert [f.name for f in tmp_path.glob("*.tar.gz")] == [f"regard-{regard.__version__}.tar.gz"]
    (wheel,) = tmp_path.glob("*.whl")

    inside = zipfile.ZipFile(wheel).namelist()
    assert "regard/py.typed" in inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert {name.split("/")[0] for name in inside} == {"regard", f"regard-{regard.__version__}.dist-info"}

    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel)
    outside = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(site)}}
    assert run(sys.executable, "-c", "import regard; print(regard.__file__)", **outside).startswith(str(site))
    assert regard.__version__ in run(sys.executable, "-m", "regard", "--version", **outside)
