"""Chat templates: how a published model formats a conversation, in Jinja. Untrusted code, so it runs sandboxed in its
own process, with limits of time and memory (`regard.confine`)."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from regard.confine import Confined
from regard.errors import CheckpointError, LimitError

if TYPE_CHECKING:
    from jinja2 import Template

Message = dict[str, str]  # role and content
_fill = Confined(f"{__name__}:fill")


def conversations(template: str, talks: Sequence[tuple[Sequence[Message], bool]], special: dict[str, str]) -> list[str]:
    """The text of each conversation; the flag adds the start of an answer. `special`: tokens by name."""
    try:
        return _fill(template=template, talks=[(list(messages), ask) for messages, ask in talks], special=special)
    except LimitError as e:
        raise LimitError(f"the model's chat template cannot be used: {e}; choose another model") from None


def fill(template: str, talks: list[tuple[list[Message], bool]], special: dict[str, str]) -> list[str]:
    """`conversations`, in the child process."""
    import jinja2

    ready = compiled(template)
    try:
        return [ready.render(messages=messages, add_generation_prompt=ask, **special) for messages, ask in talks]
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as e:
        raise CheckpointError(f"the model's chat template cannot write these messages: {e}") from None


@lru_cache(maxsize=8)
def compiled(text: str) -> "Template":
    from datetime import datetime

    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks answers for other tools; here only its content is used."""

        tags = {"generation"}  # noqa: RUF012 - as jinja2 expects it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    place = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    place.filters["tojson"] = lambda x, **how: json.dumps(x, ensure_ascii=False, **how)  # jinja2's own escapes HTML
    functions: dict[str, Any] = {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    place.globals.update(functions)
    try:
        return place.from_string(text)
    except (jinja2.TemplateError, SyntaxError, ValueError) as e:
        raise CheckpointError(f"the model's chat template is not valid Jinja: {e}") from None
