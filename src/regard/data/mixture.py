"""Several sources of text, each read more or less often than the others: what `data.mix` says."""

from regard.errors import ConfigError

MOST_EPOCHS = 100  # of a source in one epoch of a mixture


def mixture(text: str) -> dict[str, float]:
    """The sources of `code.jsonl:2,notes/:0.5`, and how many epochs of each one epoch holds."""
    weights = {}
    for source in filter(None, text.split(",")):
        path, _, number = source.strip().rpartition(":")
        try:
            weights[path] = float(number)
        except ValueError:
            weights[path] = 0.0
        if not path or not 0 < weights[path] <= MOST_EPOCHS:
            raise ConfigError(
                f"data.mix: {source.strip()!r} is not a source with a weight in (0, {MOST_EPOCHS}]; "
                "for example: --set data.mix=code.jsonl:2,notes/:0.5"
            )
    return weights
