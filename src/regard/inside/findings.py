"""A sentence for each figure that says what it shows, for those who cannot see it."""

from typing import Any

from regard.data.tokenizers.pretrained import printable
from regard.inside.attention import Overview


def add_findings(looked: Any) -> None:
    """Describe the numbers of a `Looked` in words."""
    results, say = looked.results, looked.finding
    if looked.overviews:
        say["attention"] = " ".join(of_attention(kind, o) for kind, o in looked.overviews.items())
    if "next" in results:
        say["next"] = of_next(results["next"], looked.streams["text"])
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
    if "occlusion" in results:
        say["occlusion"] = of_occlusion(results["occlusion"], looked.streams["parts"])
    if "forecast" in results:
        column, mean = results["forecast"]["column"], results["forecast"]["mean"]
        say["forecast"] = f"{column} is predicted to go from {mean[0]:.4g} to {mean[-1]:.4g} in {len(mean)} steps."
    if "translation" in results:
        best = results["translation"]["hypotheses"][0]
        which = "best translation" if results["translation"]["beam"] else "translation given"
        sure = min(best["tokens"], key=lambda t: t["logp"])
        say["translation"] = f"The {which} is {quoted(best['text'])}; its least likely piece is {quoted(sure['text'])}."


def of_occlusion(result: dict[str, Any], chips: list[dict[str, Any]]) -> str:
    changes = result["changes"]
    place = max(range(len(changes)), key=lambda i: abs(changes[i]))
    what = f"the probability of {result['of']}" if result["of"] else "the answer"
    way = "falls" if changes[place] >= 0 else "rises"
    amount = f"{abs(changes[place]):.1%}" if result["of"] else f"{abs(changes[place]):.4g}"
    return f"Without {chips[place]['shown']} {what} {way} by {amount}, more than without any other part."


def of_attention(kind: str, overview: Overview) -> str:
    layer, head = overview.sharpest
    name = "" if kind == "self" else f"{kind} "
    beaten = bool((overview.sharpness > overview.sharpness[layer, head]).any())
    aside = ", disregarding weight on the first token," if beaten else ""
    text = (
        f"The sharpest {name}head{aside} is head {head + 1} of layer {layer + 1}: "
        f"on average a token gives {overview.sharpness[layer, head]:.0%} of its weight to one position."
    )
    rest = float(overview.resting.mean())
    return text + (f" {rest:.0%} of all weight rests on the first token." if kind == "self" and rest > 0.3 else "")


def of_next(result: dict[str, Any], chips: list[dict[str, Any]]) -> str:
    best = result["top"][0]
    text = f"The likeliest next token is {quoted(best['text'])}, with {best['p']:.1%}."
    surprising = [(nats, chip) for nats, chip in zip(result["surprisal"], chips, strict=True) if nats is not None]
    if surprising:
        nats, chip = max(surprising, key=lambda pair: pair[0])
        text += f" The most surprising one was {quoted(chip['text'])}, with {nats:.1f} nats."
    return text


def quoted(text: str) -> str:
    """A token inside a sentence: without the space before it, and with hidden characters made visible."""
    return f"“{printable((text.strip() or text).encode())}”"
