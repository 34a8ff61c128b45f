"""A look as one HTML file: the page itself, with the responses it would request."""

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from regard.errors import DataError
from regard.inside.attention import row, stages
from regard.inside.embedding import ROWS
from regard.inside.looked import Looked, Question
from regard.inside.positions import positions
from regard.inside.recurrent import unrolled
from regard.inside.tensors import matrix, pack
from regard.inside.tokens import vocabulary
from regard.serve.shelf import describe

PAGE = Path(__file__).parent / "page"
FIGURE = "figure.html"
MARK = '<script id="regard-look" type="application/json">{}</script>'
NAME = "file"  # of the only look in the file
PLACES = 64  # positions shown
ROOM = 8_000_000  # bytes of exact heads; the others are thumbnails


def html(looked: Looked, folder: Path, question: Question) -> str:
    """The file's text. It has the sharpest head of each kind, then the rest of its layer, then what still fits."""
    try:
        page = (PAGE / FIGURE).read_text("utf-8")
    except OSError:
        raise DataError(f"the page is not built, so there is no {FIGURE}", "run make page, or write a .png") from None
    about = describe(f"runs/{folder.name}", folder)
    if MARK.format("null") not in page:
        raise DataError(f"{PAGE / FIGURE} has no place for the numbers", "run make page again")
    state = {"model": about["id"], "text": question.text, "second": question.second, "target": question.target}
    if looked.compared:
        state["view"] = "pair"
    data = {
        "state": "#" + urlencode({k: v for k, v in state.items() if v}),
        "look": text_of(looked.bytes(look=NAME, model=about)),
        "parts": parts(looked, about["id"]) | compared(looked, about["id"], question),
    }
    safe = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")  # so that no text can end the script element
    return page.replace(MARK.format("null"), MARK.format(safe))


def parts(looked: Looked, id: str) -> dict[str, Any]:
    """The responses by the URLs that the page requests."""
    carried: dict[str, Any] = {}
    left = ROOM
    for kind, layer, head in ordered(looked):
        attention = looked.attention[kind]
        where = {"look": NAME, "kind": kind, "layer": layer, "head": head}
        data = pack(*matrix(stages(attention.layers[layer], head)["weights"], True))
        if len(data) > left:
            break
        left -= len(data)
        carried["/api/head?" + urlencode({**where, "stage": "weights"})] = {"tensors": text_of(data)}
        if (layer, head) == looked.overviews[kind].sharpest:
            for query in range(min(64, len(looked.streams[attention.rows]))):
                data = pack(*row(attention.layers[layer], head, query))
                carried["/api/row?" + urlencode({**where, "query": query})] = {"tensors": text_of(data)}
    for stream, embedded in looked.embeddings.items():
        for start in range(0, size := len(embedded.token), ROWS):
            where = {"look": NAME, "stream": stream, "from": start, "to": min(size, start + ROWS)}
            data = pack(*embedded.part(start, size))
            carried["/api/embedding?" + urlencode(where)] = {"tensors": text_of(data)}
    model = quote(id, safe="!~*'()")  # as the page's encodeURIComponent has it
    if looked.embeddings:
        places = pack(*positions(looked.predictor.model, PLACES))
        carried[f"/api/positions?model={model}&n={PLACES}"] = {"tensors": text_of(places)}
    if "next" in looked.results:
        carried[f"/api/vocab?model={model}"] = {"json": vocabulary(looked.predictor)}
    if hasattr(looked.predictor.model.config, "cell"):
        carried[f"/api/recurrent?look={NAME}"] = {"tensors": text_of(pack(*unrolled(looked)))}
    return carried


def compared(looked: Looked, id: str, question: Question) -> dict[str, Any]:
    """The comparison with a second text, by the page's request when no word is chosen."""
    if looked.compared is None:
        return {}
    body = {"model": id, "a": question.text, "b": question.second, "word_a": -1, "word_b": -1}
    written = json.dumps(body, ensure_ascii=False, separators=(",", ":"))  # as JSON.stringify has it
    return {f"/api/pair {written}": {"tensors": text_of(pack(*looked.compared))}}


def ordered(looked: Looked) -> list[tuple[str, int, int]]:
    """Kind, layer and head of all attention, what the page shows first before the rest."""
    places = [(k, la, h) for k, a in looked.attention.items() for la in range(len(a.layers)) for h in range(a.heads)]
    best = {kind: overview.sharpest for kind, overview in looked.overviews.items()}
    return sorted(places, key=lambda p: (p[1:] != best[p[0]], p[1] != best[p[0]][0]))


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
