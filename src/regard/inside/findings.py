"""One sentence for each figure: what it shows, for whoever cannot see it."""

from typing import Any

from regard.data.tokenizers.pretrained import printable
from regard.inside.attention import Overview


def add_findings(found: Any) -> None:
    """Say in words what the numbers of a `Looked` show."""
    results, say = found.results, found.finding
    if found.overviews:
        say["attention"] = " ".join(of_attention(kind, o) for kind, o in found.overviews.items())
    if "next" in results:
        say["next"] = of_next(results["next"], found.streams["text"])
    if "classes" in results:
        best = max(results["classes"], key=lambda c: c["p"])
        say["classes"] = f"The likeliest class is {best['label']}, with {best['p']:.1%}."
    if "tags" in results:
        outside = sum(t["label"] == "O" for t in results["tags"])
        marked = [f"{t['word']} ({t['label']})" for t in results["tags"] if t["label"] != "O"]
        some = f"{len(marked)} of {len(results['tags'])} words are marked: {', '.join(marked[:8])}"
        say["tags"] = (
            f"{some}{' and more' if len(marked) > 8 else ''}." if marked else f"None of {outside} words is marked."
        )
    if results.get("fill"):
        gaps = [f"{gap['words'][0]['text']} ({gap['words'][0]['p']:.1%})" for gap in results["fill"]]
        say["fill"] = f"The likeliest {'word is' if len(gaps) == 1 else 'words are'} {', '.join(gaps)}."
    if "similar" in results:
        say["similar"] = f"The cosine of the two texts' vectors is {results['similar']['cosine']:.3f}."
    if "translation" in results:
        best = results["translation"]["hypotheses"][0]
        which = "best translation" if results["translation"]["beam"] else "translation given"
        sure = min(best["tokens"], key=lambda t: t["logp"])
        say["translation"] = f"The {which} is {quoted(best['text'])}; its least likely piece is {quoted(sure['text'])}."


def of_attention(kind: str, found: Overview) -> str:
    layer, head = found.sharpest
    name = "" if kind == "self" else f"{kind} "
    beaten = bool((found.sharpness > found.sharpness[layer, head]).any())
    aside = ", what rests on the first token left aside," if beaten else ""
    text = (
        f"The sharpest {name}head{aside} is head {head + 1} of layer {layer + 1}: "
        f"on average a token gives {found.sharpness[layer, head]:.0%} of its weight to one place."
    )
    rest = float(found.resting.mean())
    return text + (f" {rest:.0%} of all weight rests on the first token." if kind == "self" and rest > 0.3 else "")


def of_next(found: dict[str, Any], chips: list[dict[str, Any]]) -> str:
    best = found["top"][0]
    text = f"The likeliest next token is {quoted(best['text'])}, with {best['p']:.1%}."
    known = [(nats, chip) for nats, chip in zip(found["surprisal"], chips, strict=True) if nats is not None]
    if known:
        nats, chip = max(known, key=lambda pair: pair[0])
        text += f" The most surprising one was {quoted(chip['text'])}, with {nats:.1f} nats."
    return text


def quoted(text: str) -> str:
    """A token inside a sentence: without the space before it, and with hidden characters made visible."""
    return f"“{printable((text.strip() or text).encode())}”"
