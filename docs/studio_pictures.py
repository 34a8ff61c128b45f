"""Draws the pictures of docs/studio.md into docs/figures/: every view of the studio in Chromium, over real models.

python docs/studio_pictures.py

It takes the demo's translator (make demo), smollm2-135m and minilm (fetched by name), and trains a small LSTM and GPT
on film reviews, a minute and a half each, unless runs/pictures is there. Needs chromium and the page (make page).
"""

import io
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "figures"
SIZE = {"width": 1180, "height": 860}
TALLEST = {"heads": 1135}  # pixels of a picture, where not 1,700; README shows the heads
CAT, SWEET = (f"The cat drank the milk because it was {word}." for word in ("hungry", "sweet"))
CHECK, CRASHED = "Server, can I have the check?", "Looks like I just crashed the server."
SMOL, MINI, DEMO, LSTM = "cache/smollm2-135m", "cache/minilm", "runs/demo", "runs/pictures/lstm-seed0"
THINKER = "To date, the cleverest thinker of all time was"
# picture -> view, and what the address says beside it
VIEWS = {
    "tokens": ("tokens", dict(model=SMOL, text="Uebersetzungsmaschinen 😀 don't sleep.")),
    "embedding": ("embedding", dict(model=DEMO, text=CAT, query=5)),
    "search": ("search", dict(model=MINI, text=CAT, layer=2, head=3, query=7)),
    "attention": ("attention", dict(model=SMOL, text=CAT)),
    "heads": ("attention", dict(model=MINI, text=CAT, layer=2, head=3, query=7)),
    "pair": ("pair", dict(model=MINI, text=CHECK, second=CRASHED, wordA=0, wordB=6)),
    "pair-it": ("pair", dict(model=DEMO, text=CAT, second=SWEET, wordA=6, wordB=6)),
    "translation": ("translation", dict(model=DEMO, text=CAT, query=9)),
    "next": ("next", dict(model=SMOL, text=THINKER, k=50, t=0.8)),
    "labels": ("labels", dict(model=MINI, text="A film worth seeing twice.", second="I would watch this movie again.")),
    "recurrent": ("recurrent", dict(model=LSTM, text="the film was not very good, but i liked it")),
    "training": ("training", dict(runs="runs/pictures/lstm-seed0,runs/pictures/gpt-seed0")),
}


def regard(*words: str) -> list[str]:
    return [sys.executable, "-m", "regard", *words]


def ready() -> None:
    """The models, trained or fetched where they are not here yet."""
    if not (ROOT / "runs" / "demo" / "config.json").is_file():
        raise SystemExit("there is no runs/demo; train it first: make demo")
    for name in ("smollm2-135m", "minilm"):
        subprocess.run(regard("model", "get", name), check=True, cwd=ROOT)
    if not (ROOT / "runs" / "pictures" / "plan.json").is_file():
        how = ["--arch", "lstm,gpt", "--data", "movie-reviews", "--minutes", "1.5", "--name", "pictures"]
        subprocess.run(regard("train", "lm", *how), check=True, cwd=ROOT)


def draw(page, home: str, name: str) -> None:
    view, more = VIEWS[name]
    page.goto("about:blank")
    page.goto(f"{home}#{urlencode({'view': view, **more})}")
    page.locator("#view[aria-busy=false]").wait_for()
    page.locator("#view [data-figure]").first.wait_for()
    page.wait_for_timeout(1500)  # for answers that come after the first figure
    with Image.open(io.BytesIO(page.screenshot(full_page=True))) as image:
        small = image.convert("RGB").crop((0, 0, image.width, min(image.height, TALLEST.get(name, 1700)))).quantize(128)
        small.save(FOLDER / f"studio-{name}.png", optimize=True)
    print(FOLDER / f"studio-{name}.png", flush=True)


def main() -> None:
    from playwright.sync_api import sync_playwright

    ready()
    process = subprocess.Popen(regard("studio"), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        home = process.stdout.readline().split()[-1]
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_context(viewport=SIZE, reduced_motion="reduce", color_scheme="light").new_page()
            page.set_default_timeout(120_000)
            for name in sys.argv[1:] or VIEWS:
                draw(page, home, name)
            browser.close()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


if __name__ == "__main__":
    main()
