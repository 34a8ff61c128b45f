"""What a user installs: sdist, the wheel made from it, and that wheel started outside the checkout."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
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

    if page := [f.name for f in (root / "src" / "regard" / "serve" / "page").rglob("*") if f.is_file()]:
        assert {"index.html", "figure.html"} <= set(page) <= {name.split("/")[-1] for name in inside}

    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel)
    outside = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(site)}}
    assert run(sys.executable, "-c", "import regard; print(regard.__file__)", **outside).startswith(str(site))
    assert regard.__version__ in run(sys.executable, "-m", "regard", "--version", **outside)
    if page:
        assert loaded(outside) >= {"index.html", "application/javascript", "text/css"}


def loaded(outside: dict) -> set[str]:
    """Start the studio of an installed package and load its page: the kinds of all that the page names."""
    studio = [sys.executable, "-m", "regard", "studio", "--port", "0"]
    with subprocess.Popen(studio, stdout=subprocess.PIPE, text=True, **outside) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            page = urllib.request.urlopen(address, timeout=20).read().decode()
            names = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', page)
            kinds = [urllib.request.urlopen(address + name, timeout=20).headers.get_content_type() for name in names]
            return {
                "index.html" if '<div id="app">' in page else "",
                *(k.replace("text/java", "application/java") for k in kinds),
            }
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)
