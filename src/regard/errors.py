"""Errors in words a user understands: what, got, expected, what to type next."""


class RegardError(Exception):
    """An error shown as one sentence; `exit_code` is what the command line returns."""

    exit_code = 2

    def __init__(self, message: str, hint: str = ""):
        """`hint` is what to do next; `str` gives both in one sentence."""
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.hint = message, hint


class ConfigError(RegardError):
    """A wrong setting, name or flag."""


class DataError(RegardError):
    """A file that cannot be used, or a failed download."""


class ShapeError(RegardError):
    """A tensor of the wrong shape."""


class CheckpointError(RegardError):
    """A run or model folder that cannot be read."""


class LimitError(RegardError):
    """Something that needs more memory or time than it is allowed."""


class PromptTooLong(LimitError):
    """A prompt that does not fit the model, alone or with the tokens requested after it."""


class MissingExtra(RegardError):
    """An optional package that is not installed."""

    exit_code = 3

    def __init__(self, what: str, extra: str):
        super().__init__(f"{what} needs the extra {extra!r}", f"type: pip install 'regard[{extra}]'")


class WorkFailed(RegardError):
    """The input was fine but the work failed: a diverged run, a full disk."""

    exit_code = 1


def reason(error: Exception) -> str:
    """Why something failed: the system's own message, without errno and path, if there is one."""
    return getattr(error, "strerror", None) or str(error)
