"""Bugs of the studio: numbers that are not the forward pass's, and doors left open."""

from tests.zoo.bug import bugs

ATTENTION, LOOK, STATES = (f"unit/inside/test_{name}.py" for name in ("attention", "look", "states"))
APP, STUDIO = "unit/serve/test_app.py", "unit/serve/test_studio.py"

INSIDE = [
    *bugs(
        "inside.attention",
        (
            "a look takes the keys of another group",
            "vectors",
            "shared = head // (look.q.size(1) // look.k.size(1))",
            "shared = head % look.k.size(1)",
            ATTENTION,
        ),
        (
            "a look scales by the width, not by its root",
            "stages",
            "scaled = scores / math.sqrt(q.size(-1))",
            "scaled = scores / q.size(-1)",
            ATTENTION,
        ),
        (
            "thumbnails forget how scores lean",
            "summand",
            "return lean.masked_fill(~table, -torch.inf)",
            "return additive(table, torch.float32)",
            ATTENTION,
        ),
        ("every small thumbnail is that of the last head", "overview", "edge, edge).clone()", "edge, edge)", ATTENTION),
    ),
    *bugs(
        "inside.text",
        (
            "surprisal is that of the token one reads from",
            "of_writer",
            "ids[places.start + 1 : places.stop + 1, None]",
            "ids[places.start : places.stop, None]",
            LOOK,
        ),
    ),
    *bugs(
        "inside.translation",
        (
            "an ending takes the place of a hypothesis that goes on",
            "RecordedBeam.totals",
            "kept = rank < self.search.beams if ends else alive < self.search.beams",
            "kept = rank < self.search.beams",
            f"{LOOK}::test_kept_candidates_are_the_beams_of_the_next_step",
        ),
    ),
    *bugs(
        "inside.embedding",
        (
            "the embedding shown is not scaled",
            "embedded",
            'getattr(model, "scale", 1.0)',
            "1.0",
            STATES,
        ),
    ),
    *bugs(
        "inside.recurrent",
        (
            "the update gate is upside down in the picture",
            "of_layer",
            "h = (1 - z) * n + z * h",
            "h = z * n + (1 - z) * h",
            STATES,
        ),
        (
            "the second layer hears of what is shown alone",
            "unrolled",
            "x = looked.embeddings[stream].token.float()",
            "x = looked.embeddings[stream].token[:STEPS].float()",
            STATES,
        ),
    ),
    *bugs(
        "serve.guard",
        (
            "any host may ask",
            "stranger",
            'if headers.get("host", "").lower() not in homes:',
            "if not headers:",
            f"{APP}::test_other_hosts_are_refused",
        ),
        (
            "any site may ask",
            "other_site",
            "origin.lower() in origins",
            "origin.lower() not in origins",
            f"{APP}::test_other_sites_are_refused",
        ),
        (
            "pictures of any site may ask",
            "other_site",
            'and dest != "document"',
            'and dest == "document"',
            f"{APP}::test_a_picture_on_another_site_starts_no_work",
        ),
    ),
    *bugs(
        "serve.app",
        (
            "links lead out of the page",
            "page",
            "if not file.is_relative_to(PAGE.resolve()) or not file.is_file():",
            "if not file.is_file():",
            f"{APP}::test_nothing_outside_the_page_is_served",
        ),
    ),
    *bugs(
        "serve.studio",
        (
            "an overtaken question is worked on to its end",
            "Studio.ticket",
            "                old.void.set()\n",
            "                pass\n",
            f"{STUDIO}::test_work_that_waits_its_turn_is_dropped_before_it_begins",
        ),
        (
            "looks are kept for ever",
            "Studio.keep",
            "len(self.looks) > LOOKS",
            "len(self.looks) > 1000",
            f"{APP}::test_few_looks_and_two_models_are_kept",
        ),
    ),
    *bugs(
        "serve.saved",
        (
            "a text can end the script it travels in",
            "html",
            '.replace("<", "\\\\u003c")',
            "",
            "system/test_cli_look.py::test_a_page_carries_its_numbers",
        ),
    ),
]
