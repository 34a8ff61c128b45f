"""The settings of each kind of data: one frozen dataclass a kind, checked at birth, importable without torch.

Every field can be set with `--set data.NAME=VALUE`; one declared with `option` also has an option of its own.
"""

import re
from dataclasses import dataclass, field, fields
from typing import Any

from regard.config import at_least, fraction, unknown
from regard.errors import ConfigError

RATE, HOP = 16_000, 160  # of audio: samples a second; samples from frame to frame, 10 ms
NONE = -1  # the label of what has none: it does not count
TOKENS = ("bpe", "chars", "bytes")
SPLITS = ("text", "spaces")
BORDERS = ("files", "blank", "lines")
NEGATIVES = ("random", "swapped")
SHAPES = ("shear_x", "shear_y", "shift_x", "shift_y", "turn")  # operations of RandAugment
SPLIT, LEGACY_SPLIT = "v2", "v1"  # rules of `regard.data.split`; older runs name none
BEFORE = {"split_rule": LEGACY_SPLIT, "calendar": False, "as_text": True}  # what the settings of older runs amount to
TARGETS = ("classes", "numbers", "sets")
EVERY = r"(\d*)\s*(s|min|h|d|w|mo|q|y)"  # a step in time: seconds to years
READING = ("time", "series", "every", "aggregate", "calendar")  # of `HistoryConfig`: how a table is read
AGGREGATES = ("mean", "sum", "last")
COLOURS = ("brightness", "contrast", "colour", "solarise", "posterise", "sharpness")


def option(
    default: Any, help: str, *, metavar: str = "FILE", shown: str = "", file: bool = False, **limits: float
) -> Any:
    """A setting with a command-line option of its own; `shown` is what the help gives as the default.

    `file`: it names a file, and is kept as an absolute path so that a run can be resumed from anywhere.
    """
    about = {"help": help, "metavar": metavar, "shown": shown, "file": file, **limits}
    return field(default=default, metadata=about)


def file_setting(default: str = "") -> Any:
    """A setting that names a file, without an option of its own."""
    return field(default=default, metadata={"file": True})


def valid_option(help: str = "Validation data of the same form.", shown: str = "a part of the data") -> Any:
    return option("", help, shown=shown, file=True)


def label_option(help: str = "The column of the label.", shown: str = "label, sentiment, … or the last") -> Any:
    return option("", help, metavar="COLUMN", shown=shown)


def strict_option(help: str = "Fail on a row, or a file of a folder, that cannot be used.") -> Any:
    """Whether what cannot be used is an error; otherwise it is skipped and reported."""
    return option(False, help)


def least(default: Any, low: float) -> Any:
    """A number that must be at least `low`."""
    return field(default=default, metadata={"least": low})


def share(default: float) -> Any:
    """A share in (0, 1)."""
    return field(default=default, metadata={"share": True})


MOST_EPOCHS = 100  # of a source in one of a mixture


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Settings, checked at birth by what their fields say."""

    def __post_init__(self):
        for f in fields(self):
            value = getattr(self, f.name)
            if "least" in f.metadata:
                at_least(self, "data.", **{f.name: f.metadata["least"]})
            if "share" in f.metadata and not 0 < value < 1:
                raise ConfigError(f"data.{f.name} is {value}; it must be in (0, 1)")
            if f.name == "split_rule" and value not in (SPLIT, LEGACY_SPLIT):
                raise unknown("rule to split by", value, (SPLIT, LEGACY_SPLIT))


@dataclass(frozen=True, kw_only=True)
class LabelColumn(DataConfig):
    """What the label column holds, as `regard.data.targets` names it."""

    targets: str = "classes"

    def __post_init__(self):
        super().__post_init__()
        if self.targets not in TARGETS:
            raise unknown("kind of targets", self.targets, TARGETS)
        if self.targets != "classes" and vars(self).get("balanced"):
            raise ConfigError("data.balanced is for classes; leave it out")


@dataclass(frozen=True, kw_only=True)
class OwnData(DataConfig):
    """The user's own data at `path`; without `valid`, a share of it (of every class, where there are classes) is the
    validation set."""

    path: str = file_setting()
    valid: str = valid_option()
    held_out: float = share(0.1)
    split_rule: str = SPLIT
    strict: bool = strict_option()


@dataclass(frozen=True, kw_only=True)
class PairsConfig(DataConfig):
    """Parallel text for translation: a known `name`, or the user's own files."""

    name: str = ""
    source: str = option("", "Your source sentences, one a line; or a table that --target names too.", file=True)
    target: str = option("", "Their translations, line by line.", file=True)
    valid_source: str = option(
        "", "Validation sentences; BLEU is computed on them.", shown="1 % of the source", file=True
    )
    valid_target: str = option("", "Their translations.", file=True)
    vocab: int = least(8000, 0)
    tokenizer: str = file_setting()  # the model folder whose tokenizer is used
    split: str = "text"  # "spaces" for text that is tokenised already
    max_length: int = least(256, 2)  # pieces on either side, the end mark included
    max_ratio: float = least(4.0, 1)  # longer side over shorter side
    max_words: int = least(0, 0)  # source words of a training pair; 0 is no limit
    cut: bool = False  # whether a source of more than `max_length` pieces is cut; else its pair is left out
    bpe_dropout: float = 0.0
    repeat_short: int = least(1, 1)  # how often an epoch has each pair of at most three source pieces, as greetings are
    split_rule: str = SPLIT

    def __post_init__(self):
        super().__post_init__()
        if self.split not in SPLITS:
            raise ConfigError(f"data.split is 'text' or 'spaces', got {self.split!r}")
        fraction(self, "bpe_dropout", "data.")


def mixture(text: str) -> dict[str, float]:
    """The further sources of `code.jsonl:2,notes/:0.5` and how many epochs of each an epoch holds."""
    weights = {}
    for source in filter(None, text.split(",")):
        path, _, number = source.strip().rpartition(":")
        try:
            weights[path] = float(number)
        except ValueError:
            weights[path] = 0.0
        if not path or not 0 < weights[path] <= MOST_EPOCHS:
            raise ConfigError(
                f"data.mix: {source.strip()!r} is not a source and its weight, above 0 and at most {MOST_EPOCHS}; "
                "type as in: --set data.mix=code.jsonl:2,notes/:0.5"
            )
    return weights


@dataclass(frozen=True, kw_only=True)
class TextConfig(OwnData):
    """Text to learn the next token of: a known `name`, or a file, a .jsonl or Parquet, or a folder of them at `path`.

    The last part of a text is the validation set: a share of its characters, or of the number of records.
    """

    name: str = ""
    tokens: str = option(
        "bpe", "What text is cut into: bpe (learned here), chars or bytes.", metavar="NAME", shown="bpe"
    )
    vocab: int = least(8000, 0)  # of bpe
    tokenizer: str = file_setting()  # the model folder whose tokenizer is used
    context: int = least(0, 0)  # tokens of a row; 0 is all that the model can see
    max_length: int = least(0, 0)  # tokens of a record, the rest is cut; 0 is no limit
    template: str = ""  # how the prompts of records are worded, as in "Summarise: {prompt}"
    as_text: bool = False  # whether a CSV or TSV file is learned as it is written
    mix: str = ""  # further sources with weights, as code.jsonl:2,notes/:0.5: epochs of each in an epoch of `path`

    def __post_init__(self):
        super().__post_init__()
        if self.tokens not in TOKENS:
            raise unknown("way to cut text", self.tokens, TOKENS)
        mixture(self.mix)


@dataclass(frozen=True, kw_only=True)
class MaskedConfig(DataConfig):
    """Documents to mask words of: a known `name`, or a text, a folder of texts, or a .jsonl at `path`."""

    name: str = ""
    path: str = file_setting()
    valid: str = valid_option()
    held_out: float = share(0.05)  # else that share of the documents; the same text is never on both sides
    strict: bool = strict_option("Fail on a file of a folder that is not text.")
    as_text: bool = False  # whether a CSV or TSV file is learned as it is written
    documents: str = ""  # where one ends: files, blank (lines) or lines; "": files in a folder, blank in one text
    vocab: int = least(8000, 0)
    lower: bool = True
    max_length: int = least(128, 8)  # tokens of a row, [CLS] and [SEP] among them
    masked: float = share(0.15)  # of the tokens
    whole_words: bool = False  # mask all pieces of a word, or none
    next_sentence: bool = True  # also learn whether B follows A
    negatives: str = "random"  # B that does not follow: from another document, or "swapped": A and B change places

    def __post_init__(self):
        super().__post_init__()
        if self.documents and self.documents not in BORDERS:
            raise unknown("border of documents", self.documents, BORDERS)
        if self.negatives not in NEGATIVES:
            raise unknown("kind of negatives", self.negatives, NEGATIVES)

    @property
    def longest(self) -> int:
        """Tokens of a sentence, at most: then any two fit into a row."""
        return (self.max_length - 3) // 2


@dataclass(frozen=True, kw_only=True)
class LabelledConfig(LabelColumn, OwnData):
    """Texts with their classes, or sentences with a tag for each word: a known `name`, or a file at `path`."""

    name: str = ""
    text: str = option("", "The column of the text, by name or number.", metavar="COLUMN",
                       shown="text, review, … or the first")  # fmt: skip
    second: str = option("", "Of pairs: the column of the second text.", metavar="COLUMN")
    label: str = label_option()
    vocab: int = least(8000, 0)
    lower: bool = True  # whether a vocabulary learned here ignores case
    tokenizer: str = file_setting()  # the model folder whose tokenizer is used
    max_length: int = least(128, 4)  # pieces of a text, or of a pair, [CLS] and [SEP] included; the rest is cut
    balanced: bool = False  # whether all classes weigh alike in the loss, however rare


@dataclass(frozen=True, kw_only=True)
class AlikeConfig(OwnData):
    """Pairs of texts at `path` whose vectors should be near each other."""

    text: str = option("", "The column of the first text, by name or number.", metavar="COLUMN",
                       shown="text, question, … or the first")  # fmt: skip
    second: str = option("", "The column of the second text.", metavar="COLUMN",
                         shown="second, answer, … or the second")  # fmt: skip
    tokenizer: str = file_setting()  # the model folder whose tokenizer is used
    max_length: int = least(128, 4)  # pieces of a text; the rest is cut


@dataclass(frozen=True, kw_only=True)
class Augment:
    """How training images are changed; everything is off by default."""

    crop: float = 0.0  # share of the side that is added around before a crop of the old size is taken anywhere
    flip: bool = False  # left and right, half of the time
    operations: int = 0  # of RandAugment (Cubuk et al. 2020), for each image others
    strength: float = 0.3  # of them, 0 to 1
    erase: float = 0.0  # how often a rectangle is replaced by noise (Zhong et al. 2020)
    mixup: float = 0.0  # α of two images blended (Zhang et al. 2018); 0: never
    cutmix: float = 0.0  # α of a part of one put into another (Yun et al. 2019); 0: never. With both, one or the other

    def __post_init__(self):
        at_least(self, "data.augment.", crop=0, operations=0, strength=0, erase=0, mixup=0, cutmix=0)
        if self.operations > len(SHAPES + COLOURS):
            raise ConfigError(f"data.augment.operations is {self.operations}; there are {len(SHAPES + COLOURS)}")
        if max(self.crop, self.strength, self.erase) > 1:
            raise ConfigError("data.augment.crop, data.augment.strength and data.augment.erase are at most 1")


@dataclass(frozen=True, kw_only=True)
class ImagesConfig(LabelColumn, OwnData):
    """A known `name`, or a `path`: a folder with a folder for each class, or a table of paths and labels."""

    name: str = ""
    label: str = label_option("Of a table: the column of the class.", "label, class, …")
    size: int = least(0, 0)  # pixels a side; 0: a known set's own, 64 otherwise
    channels: int = 0  # 1 grey, 3 colours; 0: as the images are
    balanced: bool = False  # whether rare classes are sampled as often as common ones
    augment: Augment = field(default_factory=Augment)

    def __post_init__(self):
        super().__post_init__()
        if self.channels not in (0, 1, 3):
            raise ConfigError(f"data.channels is {self.channels}; it must be 1 (grey), 3 (colours) or 0 (as they are)")
        if self.targets != "classes" and (self.augment.mixup or self.augment.cutmix):
            raise ConfigError("data.augment: mixup and cutmix are for single classes; leave them out")


@dataclass(frozen=True, kw_only=True)
class TableConfig(LabelColumn, OwnData):
    """A table at `path`, whose column `label` is predicted from the others."""

    label: str = label_option("The column to predict.", "label, class, … or the last")
    balanced: bool = False  # whether rare classes are sampled as often as common ones


@dataclass(frozen=True, kw_only=True)
class CaptionsConfig(OwnData):
    """A known `name`, or a table at `path` with a row for each caption, and its `images`."""

    name: str = ""
    images: str = option("", "The folder, or the tar file, of the images.", metavar="FOLDER",
                         shown="next to the table", file=True)  # fmt: skip
    valid: str = valid_option("A table of validation images.")
    valid_images: str = file_setting()  # theirs; "": where the others are
    size: int = least(96, 1)  # pixels a side
    tokenizer: str = file_setting()  # the model folder whose tokenizer is used
    vocab: int = least(4000, 0)
    lower: bool = True  # captions are lower-cased
    max_length: int = least(40, 2)  # pieces of a caption, its end included; the rest is cut
    augment: Augment = field(default_factory=Augment)

    def __post_init__(self):
        super().__post_init__()
        if self.augment.mixup or self.augment.cutmix:
            raise ConfigError("data.augment: mixed images have no caption; mixup and cutmix are for classes")


@dataclass(frozen=True, kw_only=True)
class SeriesConfig(LabelColumn):
    """Series with their classes: a known `name`, or a file or folder at `path`. "" takes a column by its usual name."""

    name: str = ""
    path: str = file_setting()
    valid: str = valid_option()
    labels: str = file_setting()  # a table of ids and labels, where they are kept apart from the series
    folds: int = least(10, 2)  # without `valid`, fold `fold` of `folds` is the validation set, stratified by class
    fold: int = least(0, 0)
    id: str = ""
    time: str = ""
    value: str = ""
    error: str = ""
    band: str = ""
    label: str = label_option(shown="label, class, …")
    known: tuple[str, ...] = ()  # columns of numbers known of each object, in the table of labels
    max_length: int = least(512, 1)  # points of a series; the rest is not read
    window: int = least(0, 0)  # in training, a random stretch of so many points; 0: all of them
    thin: float = 0.0  # in training, up to that share of the points is dropped, and so is what exceeds a window
    jitter: float = least(0.0, 0)  # in training, Gaussian noise on the values, in units of their errors
    hide: float = 0.0  # in training, that share of the values is hidden
    balanced: bool = False  # whether rare classes are sampled as often as common ones
    weights: tuple[str, ...] = ()  # class=weight of the weighted loss that is reported; the others weigh 1
    split_rule: str = SPLIT
    strict: bool = strict_option("Fail on a row that cannot be used, or a series without a label.")

    def __post_init__(self):
        super().__post_init__()
        fraction(self, "hide", "data.")
        fraction(self, "thin", "data.")
        if self.fold >= self.folds:
            raise ConfigError(f"data.fold is {self.fold}; of {self.folds} folds the last is {self.folds - 1}")
        for weight in self.weights:
            if not re.fullmatch(r".+=\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", weight):
                raise ConfigError(f"data.weights takes class=weight, got {weight!r}")


@dataclass(frozen=True, kw_only=True)
class HistoryConfig(DataConfig):
    """A known `name`, or a table at `path`, its rows in time."""

    name: str = ""
    path: str = file_setting()
    time: str = ""  # its column; "": one with a usual name, or else the order of the rows
    target: tuple[str, ...] = option((), "The columns to forecast, by comma.", metavar="COLUMNS", shown="all numbers")
    series: str = option("", "The column that names the series, of a table of several.", metavar="COLUMN")
    covariates: tuple[str, ...] = option(
        (), "Columns known in advance, such as holidays or prices, by comma.", metavar="COLUMNS"
    )
    every: str = option("", "Resample to this step: 15min, 1h, 1d, 1w, 1mo, 1y.", metavar="STEP", shown="as it is")
    aggregate: str = "mean"  # of the numbers of a resampled step: mean, sum or last
    calendar: bool = True  # whether missing times become gaps; False: rows are taken as equally spaced
    lookback: int = least(336, 2)  # rows the model sees
    horizon: int = option(96, "Rows to forecast.", metavar="N", shown="96", least=1)
    parts: tuple[float, ...] = (0.7, 0.1, 0.2)  # of the rows, in time: to train, to validate, to test; or their numbers
    season: int = least(0, 0)  # period of the seasonal naive forecast, in rows; 0: estimated from the training set
    strict: bool = strict_option("Fail on a row that cannot be used.")

    def __post_init__(self):
        super().__post_init__()
        if len(self.parts) != 3 or min(self.parts) <= 0 or (sum(self.parts) > 1 + 1e-6 and min(self.parts) < 1):
            raise ConfigError(f"data.parts are {self.parts}; three shares that sum to 1, or three numbers of rows")
        if self.every and not re.fullmatch(EVERY, self.every):
            raise ConfigError(f"data.every is {self.every!r}; expected a step such as 15min, 1h, 1d, 1w, 1mo or 1y")
        if self.aggregate not in AGGREGATES:
            raise unknown("way to aggregate", self.aggregate, AGGREGATES)


@dataclass(frozen=True, kw_only=True)
class AudioConfig(OwnData):
    """A known `name`, or a `path`: a folder, a tar archive of one, or a table of files and labels."""

    name: str = ""
    label: str = label_option("Of a table: the column of the class.")
    balanced: bool = False  # whether rare classes are sampled as often as common ones
    seconds: float = least(10.0, 0.1)  # what is longer is cut
    mels: int = least(40, 1)  # bands of the spectrogram
    masks: int = least(2, 0)  # stretches of time, and of frequency, that are masked in training (Park et al. 2019)
    widest: float = share(0.2)  # of the clip, and of the bands, that one such stretch may take

    @property
    def frames(self) -> int:
        """Of the longest clip."""
        return round(self.seconds * RATE) // HOP
