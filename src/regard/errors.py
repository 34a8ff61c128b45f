"""What a user did, in words a user understands: what, got, expected, what to type next."""


class RegardError(Exception):
    """An error that a person reads in one sentence; `exit_code` is what the command line returns."""

    exit_code = 2

    def __init__(self, message: str, hint: str = ""):
        """`hint` is what to do next; `str` gives both in one sentence."""
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.hint = message, hint


class ConfigError(RegardError):
    """A setting, a name or a flag."""


class DataError(RegardError):
    """A file or a download."""


class ShapeError(RegardError):
    """A tensor at a public door."""


class CheckpointError(RegardError):
    """A run or model folder that cannot be read."""


class LimitError(RegardError):
    """Something that needs more memory or time than it may take."""


class PromptTooLong(LimitError):
    """A prompt that the model cannot read, or not with so many tokens after it."""


class MissingExtra(RegardError):
    """An optional package that is not installed."""

    exit_code = 3

    def __init__(self, what: str, extra: str):
        super().__init__(f"{what} needs the extra {extra!r}", f"type: pip install 'regard[{extra}]'")


class WorkFailed(RegardError):
    """The input was fine and the work itself failed: a diverged run, a full disk."""

    exit_code = 1


def reason(error: Exception) -> str:
    """Why something failed, in the words of the system if it has any: without number and path."""
    return getattr(error, "strerror", None) or str(error)
