"""How a task scores models: on the user's data or their own, alone or compared with another model."""

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

from regard.errors import ConfigError
from regard.tasks.use import Options, ShownExample, TestSet, Verdict
from regard.ticks import Console


class Scored:
    """The part of a `Task` used by `regard evaluate` and `regard compare`."""

    card: Any
    evaluate_takes: tuple[str, ...] = ("data",)  # the `Options` that `regard evaluate` takes for it
    test_files = "--data FILE"  # what `regard evaluate` needs for a model without its own test set

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        """Score a model on the user's data, or on its own test or validation set."""
        raise ConfigError(f"{folder} cannot be scored; to use it, type: regard {self.card.use.format(folder)}")

    @property
    def scored(self) -> bool:
        return type(self).evaluate is not Scored.evaluate

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        """What to score on."""
        raise NotImplementedError

    def training_contents(self, predictor: Any, data: Any) -> Iterable[Hashable]:
        """The identity of each training example of a run with these data settings, as in `TestSet.contents`."""
        return ()

    compare_takes: tuple[str, ...] = ()  # empty: models cannot be compared by example

    def compared_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        """What two models are compared on."""
        return self.test_set(predictor, folder, options, console)

    def outcomes(self, predictor: Any, test: TestSet, options: Options, console: Console) -> Any:
        """One model's outcomes for `differences`: `Sums`, unless a task overrides both."""
        raise NotImplementedError

    def differences(self, test: TestSet, outcomes: Sequence[Any], options: Options, samples: int) -> list[Any]:
        """`Difference`s of two models by their outcomes on the same examples; the first decides which is better."""
        from regard.metrics.compare import compare_sums

        return [compare_sums(*outcomes, samples=samples)]

    def own_data(self, folder: Path) -> Any:
        """The data settings of the run in `folder`; a model that was not trained here has none."""
        from regard.tasks.plan import read_run

        if (folder / "run.json").is_file():
            return read_run(folder).data
        raise ConfigError(f"{folder} has no data to score on; type: regard evaluate {folder} {self.test_files}")

    def example_of(self, predictor: Any, number: int) -> ShownExample:
        """Example `number`, modulo their count, of the model's own test or validation set, which is read once."""
        if predictor.test is None:
            predictor.test = self.test_set(predictor, predictor.folder, Options(), Console(quiet=True))
        test, count = predictor.test, len(predictor.test.targets)
        return ShownExample(test.on, number % count, count, self.one_of(test.inputs, number % count))

    def one_of(self, inputs: Any, number: int) -> Any:
        """One of a predictor's inputs, as a sequence of one."""
        return inputs[number : number + 1]

    def has_test_set(self, data: dict[str, Any]) -> bool:
        """Whether a run with these data settings, as in run.json, can be scored without further files."""
        return bool(data)

    def how_to_score(self, run: str, data: dict[str, Any]) -> str:
        """The command line that scores a run."""
        return f"regard evaluate {run}" + ("" if self.has_test_set(data) else f" {self.test_files}")
