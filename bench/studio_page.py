"""Latency of the page: 1,024 tokens through a GPT of 12 layers with 12 heads, in chromium, the server on two threads.

python bench/studio_page.py

It prints the seconds from the request to the first figure without the forward pass (at most 2), the bytes sent for it
(at most 1 MiB), and how long the page takes to respond to a click or a key (under 100 ms).
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import torch
from _common import machine

from regard.data.tokenizers.bytelevel import ByteLevel
from regard.models import build
from regard.models.gpt import GPTConfig
from regard.models.published import to_published, weights_bytes

TEXT = "".join(chr(97 + place % 26) for place in range(1024))
FRAMES = "await new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)));"
CLICK = f"async thing => {{ const t = performance.now(); thing.click(); {FRAMES} return performance.now() - t; }}"
KEY = f"""async key => {{ const t = performance.now();
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {{key, bubbles: true}}));
  {FRAMES} return performance.now() - t; }}"""


def write_model(folder: Path) -> None:
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    tokenizer = ByteLevel.train(["a"], 257)
    model = build(GPTConfig(vocab=tokenizer.size))
    tokenizer.save(folder, 1024)
    (folder / "config.json").write_text(json.dumps(to_published(model.config)))
    (folder / "model.safetensors").write_bytes(weights_bytes(model))


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place, sync_playwright() as play:
        write_model(Path(place, "runs", "gpt2"))
        command = [sys.executable, "-m", "regard", "studio", "--runs", str(Path(place, "runs")), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            home = server.stdout.readline().split()[-1]
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            sent: list[int] = []
            page.on("response", lambda r: "/api/" in r.url and sent.append(int(r.headers.get("content-length", 0))))
            page.goto(home + "#" + urlencode({"model": "runs/gpt2", "view": "attention", "text": "a"}))
            page.locator("#view[aria-busy=false] [data-figure]").first.wait_for()
            page.locator("#text").fill(TEXT)
            waits, forward = [], []
            for _ in range(3):
                sent.clear()
                begin = time.perf_counter()
                page.get_by_role("button", name="Look").click()
                page.locator("#view[aria-busy=true]").wait_for()
                page.locator("#view[aria-busy=false] [data-figure]").first.wait_for()
                waits.append(time.perf_counter() - begin)
                said = page.locator("[role=status]").first.text_content() or ""
                forward.append(float(said.split(" in ")[1].split()[0]) / (1000 if " ms" in said else 1))
                bytes_sent = sum(sent)
            words = page.locator("[role=option]")
            clicks = [words.nth(i).evaluate(CLICK) for i in (5, 300, 900)]
            keys = [page.evaluate(KEY, key) for key in "].[,].[,"]
            browser.close()
            server.terminate()
    after = min(a - b for a, b in zip(waits, forward, strict=True))
    print(f"{machine('cpu')} · first figure {after:.2f} s after a pass of {min(forward):.2f} s · {bytes_sent:,} bytes")
    for name, times in (("clicks", clicks), ("keys", keys)):
        print(f"{name}: median {statistics.median(times):.0f} ms, longest {max(times):.0f} ms")


if __name__ == "__main__":
    main()
