"""The data settings: a frozen dataclass for each kind of data, checked on construction, importable without torch.

Every field can be set with `--set data.NAME=VALUE`; those declared with `option` also have a command-line option.
"""

import re
from dataclasses import dataclass, field, fields
from typing import Any

from regard.config import at_least, fraction, unknown
from regard.data.mixture import mixture
from regard.errors import ConfigError

RATE, HOP = 16_000, 160  # of audio: samples per second; samples between frames, 10 ms
NONE = -1  # the label of tokens without one, which do not count
TOKENS = ("bpe", "chars", "bytes")
SPLITS = ("text", "spaces")
BORDERS = ("files", "blank", "lines")
NEGATIVES = ("random", "swapped")
SHAPES = ("shear_x", "shear_y", "shift_x", "shift_y", "turn")  # operations of RandAugment
SPLIT, LEGACY_SPLIT = "v2", "v1"  # rules of `regard.data.split`; older runs record none
BEFORE = {"split_rule": LEGACY_SPLIT, "calendar": False, "as_text": True}  # the values for older runs
TARGETS = ("classes", "numbers", "sets")
EVERY = r"(\d*)\s*(s|min|h|d|w|mo|q|y)"  # a step in time: seconds to years
READING = ("time", "series", "every", "aggregate", "calendar")  # of `HistoryConfig`: how a table is read
AGGREGATES = ("mean", "sum", "last")
COLOURS = ("brightness", "contrast", "colour", "solarise", "posterise", "sharpness")


def option(
    default: Any, help: str, *, metavar: str = "FILE", shown: str = "", file: bool = False, **limits: float
) -> Any:
    """A setting with a command-line option; `shown` is the default in the help.

    `file`: it names a file, and is stored as an absolute path so that a run can be resumed from anywhere.
    """
    about = {"help": help, "metavar": metavar, "shown": shown, "file": file, **limits}
    return field(default=default, metadata=about)


def file_setting() -> Any:
    """A setting that names a file, without a command-line option."""
    return field(default="", metadata={"file": True})


def valid_option(help: str = "Validation data in the same format.") -> Any:
    return option("", help, shown="a part of the data", file=True)


def label_option(help: str = "The column of the label.", shown: str = "label, sentiment, … or the last") -> Any:
    return option("", help, metavar="COLUMN", shown=shown)


def strict_option(help: str = "Fail on a row, or a file of a folder, that cannot be used.") -> Any:
    """Whether unusable rows or files are an error; otherwise they are skipped and reported."""
    return option(False, help)


def least(default: Any, low: float) -> Any:
    """A number that must be at least `low`."""
    return field(default=default, metadata={"least": low})


def share(default: float) -> Any:
    """A share in (0, 1)."""
    return field(default=default, metadata={"share": True})


def rate(default: float) -> Any:
    """A share in [0, 1)."""
    return field(default=default, metadata={"rate": True})


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Settings, checked on construction by the limits of their fields."""

    def __post_init__(self):
        for f in fields(self):
            value = getattr(self, f.name)
            if "least" in f.metadata:
                at_least(self, "data.", **{f.name: f.metadata["least"]})
            if "share" in f.metadata and not 0 < value < 1:
                raise ConfigError(f"data.{f.name} is {value}; must be in (0, 1)")
            if "rate" in f.metadata:
                fraction(self, f.name, "data.")
            if f.name == "split_rule" and value not in (SPLIT, LEGACY_SPLIT):
                raise unknown("rule to split by", value, (SPLIT, LEGACY_SPLIT))


@dataclass(frozen=True, kw_only=True)
class LabelColumn(DataConfig):
    """What the label column holds, in the terms of `regard.data.targets`."""

    targets: str = "classes"

    def __post_init__(self):
        super().__post_init__()
        if self.targets not in TARGETS:
            raise unknown("kind of targets", self.targets, TARGETS)
        if self.targets != "classes" and vars(self).get("balanced"):
            raise ConfigError("data.balanced is for classes; leave it out")


@dataclass(frozen=True, kw_only=True)
class OwnData(DataConfig):
    """The user's own data at `path`; without `valid`, a share of it (of each class, if any) is the validation set."""

    path: str = file_setting()
    valid: str = valid_option()
    held_out: float = share(0.1)
    split_rule: str = SPLIT
    strict: bool = strict_option()


@dataclass(frozen=True, kw_only=True)
class PairsConfig(DataConfig):
    """Parallel text for translation: a known `name`, or the user's own files."""

    name: str = ""
    source: str = option("", "Your source sentences, one per line; or a table that --target names too.", file=True)
    target: str = option("", "Their translations, line by line.", file=True)
    valid_source: str = option(
        "", "Validation sentences; BLEU is computed on them.", shown="1 % of the source", file=True
    )
    valid_target: str = option("", "Their translations.", file=True)
    vocab: int = least(8000, 0)
    tokenizer: str = file_setting()  # the model folder whose tokenizer is used
    split: str = "text"  # "spaces" for text that is already tokenised
    max_length: int = least(256, 2)  # tokens on either side, with the end token
    max_ratio: float = least(4.0, 1)  # longer side over shorter side
    max_words: int = least(0, 0)  # source words of a training pair; 0 is no limit
    cut: bool = False  # whether a source of more than `max_length` tokens is cut; otherwise its pair is dropped
    bpe_dropout: float = rate(0.0)
    repeat_short: int = least(1, 1)  # how often an epoch has pairs of at most three source tokens, such as greetings
    split_rule: str = SPLIT

    def __post_init__(self):
        super().__post_init__()
        if self.split not in SPLITS:
            raise ConfigError(f"data.split must be 'text' or 'spaces', got {self.split!r}")


@dataclass(frozen=True, kw_only=True)
class TextConfig(OwnData):
    """Text for language modelling: a named data set, or a file, a .jsonl or Parquet, or a folder of them at `path`.

    The validation set is the end of a text, a share of its characters, or a share of the records.
    """

    name: str = ""
    tokens: str = option("bpe", "The tokens: bpe (learned here), chars or bytes.", metavar="NAME", shown="bpe")
    vocab: int = least(8000, 0)  # of bpe
    tokenizer: str = file_setting()  # the model folder whose tokenizer is used
    context: int = least(0, 0)  # tokens per row; 0 is the model's context
    max_length: int = least(0, 0)  # tokens of a record, the rest is cut; 0 is no limit
    template: str = ""  # of the prompts of records, such as "Summarise: {prompt}"
    as_text: bool = False  # whether a CSV or TSV file is learned as it is written
    mix: str = ""  # more sources with weights, code.jsonl:2,notes/:0.5: epochs of each in an epoch of `path`

    def __post_init__(self):
        super().__post_init__()
        if self.tokens not in TOKENS:
            raise unknown("kind of tokens", self.tokens, TOKENS)
        mixture(self.mix)


@dataclass(frozen=True, kw_only=True)
class MaskedConfig(DataConfig):
    """Documents for BERT's pre-training: a named data set, or a text, a folder of texts, or a .jsonl at `path`."""

    name: str = ""
    path: str = file_setting()
    valid: str = valid_option()
    held_out: float = share(0.05)  # otherwise this share of the documents; the same text is never in both
    strict: bool = strict_option("Fail on a file of a folder that is not text.")
    as_text: bool = False  # whether a CSV or TSV file is learned as it is written
    documents: str = ""  # what ends one: files, blank (lines) or lines; "": files in a folder, blank in a text
    vocab: int = least(8000, 0)
    lower: bool = True
    max_length: int = least(128, 8)  # tokens of a row, with [CLS] and [SEP]
    masked: float = share(0.15)  # of the tokens
    whole_words: bool = False  # mask all tokens of a word, or none
    next_sentence: bool = True  # also predict whether B follows A
    negatives: str = "random"  # a B that does not follow: from a "random" document, or "swapped" with A

    def __post_init__(self):
        super().__post_init__()
        if self.documents and self.documents not in BORDERS:
            raise unknown("document border", self.documents, BORDERS)
        if self.negatives not in NEGATIVES:
            raise unknown("kind of negatives", self.negatives, NEGATIVES)

    @property
    def longest(self) -> int:
        """The most tokens of a sentence, so that any two fit into a row."""
        return (self.max_length - 3) // 2


@dataclass(frozen=True, kw_only=True)
class LabelledConfig(LabelColumn, OwnData):
    """Texts with classes, or sentences with a tag for each word: a named data set, or a file at `path`."""

    name: str = ""
    text: str = option("", "The column of the text, by name or number.", metavar="COLUMN",
                       shown="text, review, … or the first")  # fmt: skip
    second: str = option("", "For pairs: the column of the second text.", metavar="COLUMN")
    label: str = label_option()
    vocab: int = least(8000, 0)
    lower: bool = True  # whether a vocabulary learned here ignores case
    case: bool = False  # tagging: whether segments tell a BERT that reads lower-cased words how they are written
    replace_mentions: float = rate(
        0.0
    )  # tagging: how often the mention of an entity in training is replaced by another
    tokenizer: str = file_setting()  # the model folder whose tokenizer is used
    max_length: int = least(128, 4)  # tokens of a text or pair, with [CLS] and [SEP]; the rest is cut
    balanced: bool = False  # whether all classes weigh the same in the loss


@dataclass(frozen=True, kw_only=True)
class AlikeConfig(OwnData):
    """Pairs of texts at `path` whose vectors should be close together."""

    text: str = option("", "The column of the first text, by name or number.", metavar="COLUMN",
                       shown="text, question, … or the first")  # fmt: skip
    second: str = option("", "The column of the second text.", metavar="COLUMN",
                         shown="second, answer, … or the second")  # fmt: skip
    tokenizer: str = file_setting()  # the model folder whose tokenizer is used
    max_length: int = least(128, 4)  # tokens of a text; the rest is cut


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Augmentation of training images; everything is off by default."""

    crop: float = 0.0  # padding, as a share of the side, before a random crop of the old size
    flip: bool = False  # mirror horizontally, half of the time
    operations: int = 0  # of RandAugment (Cubuk et al. 2020), chosen for each image
    strength: float = 0.3  # of the operations, 0 to 1
    erase: float = 0.0  # how often a rectangle is replaced by noise (Zhong et al. 2020)
    mixup: float = 0.0  # α of two images blended (Zhang et al. 2018); 0: never
    cutmix: float = 0.0  # α of a part of one pasted into another (Yun et al. 2019); 0: never. With mixup, either

    def __post_init__(self):
        at_least(self, "data.augment.", crop=0, operations=0, strength=0, erase=0, mixup=0, cutmix=0)
        if self.operations > len(SHAPES + COLOURS):
            raise ConfigError(f"data.augment.operations is {self.operations}; at most {len(SHAPES + COLOURS)}")
        if max(self.crop, self.strength, self.erase) > 1:
            raise ConfigError("data.augment.crop, data.augment.strength and data.augment.erase must be at most 1")


@dataclass(frozen=True, kw_only=True)
class ImagesConfig(LabelColumn, OwnData):
    """A named data set, or a `path`: a folder with a folder for each class, or a table of paths and labels."""

    name: str = ""
    label: str = label_option("In a table: the column of the class.", "label, class, …")
    size: int = least(0, 0)  # pixels a side; 0: a known set's own, 64 otherwise
    channels: int = 0  # 1 grey, 3 colour; 0: as the images are
    balanced: bool = False  # whether rare classes are sampled as often as common ones
    augment: Augment = field(default_factory=Augment)

    def __post_init__(self):
        super().__post_init__()
        if self.channels not in (0, 1, 3):
            raise ConfigError(f"data.channels is {self.channels}; must be 1 (grey), 3 (colour) or 0 (as they are)")
        if self.targets != "classes" and (self.augment.mixup or self.augment.cutmix):
            raise ConfigError("data.augment: mixup and cutmix are for single classes; leave them out")


@dataclass(frozen=True, kw_only=True)
class TableConfig(LabelColumn, OwnData):
    """A table at `path` whose column `label` is predicted from the others."""

    label: str = label_option("The column to predict.", "label, class, … or the last")
    balanced: bool = False  # whether rare classes are sampled as often as common ones


@dataclass(frozen=True, kw_only=True)
class CaptionsConfig(OwnData):
    """A named data set, or a table at `path` with a row for each caption, and its `images`."""

    name: str = ""
    images: str = option("", "The folder or tar file of the images.", metavar="FOLDER",
                         shown="next to the table", file=True)  # fmt: skip
    valid: str = valid_option("A table of validation images.")
    valid_images: str = file_setting()  # of the validation table; "": those of `images`
    size: int = least(96, 1)  # pixels a side
    tokenizer: str = file_setting()  # the model folder whose tokenizer is used
    vocab: int = least(4000, 0)
    lower: bool = True  # whether captions are lower-cased
    max_length: int = least(40, 2)  # tokens of a caption, with its end; the rest is cut
    augment: Augment = field(default_factory=Augment)

    def __post_init__(self):
        super().__post_init__()
        if self.augment.mixup or self.augment.cutmix:
            raise ConfigError("data.augment: mixup and cutmix are for classes; mixed images have no caption")


@dataclass(frozen=True, kw_only=True)
class SeriesConfig(LabelColumn):
    """Series with classes: a named data set, or a file or folder at `path`. An empty column takes a usual name."""

    name: str = ""
    path: str = file_setting()
    valid: str = valid_option()
    labels: str = file_setting()  # a separate table of ids and labels
    folds: int = least(10, 2)  # without `valid`, fold `fold` of `folds` is the validation set, stratified by class
    fold: int = least(0, 0)
    id: str = ""
    time: str = ""
    value: str = ""
    error: str = ""
    band: str = ""
    label: str = label_option(shown="label, class, …")
    known: tuple[str, ...] = ()  # columns of the table of labels with numbers known of each object
    max_length: int = least(512, 1)  # points of a series; the rest is not read
    window: int = least(0, 0)  # in training, a random span of this many points; 0: all of them
    thin: float = rate(0.0)  # in training, up to this share of the points is dropped, and what exceeds a window
    jitter: float = least(0.0, 0)  # in training, Gaussian noise on the values, in units of their errors
    hide: float = rate(0.0)  # in training, this share of the values is hidden
    balanced: bool = False  # whether rare classes are sampled as often as common ones
    weights: tuple[str, ...] = ()  # class=weight for the reported weighted loss; others weigh 1
    split_rule: str = SPLIT
    strict: bool = strict_option("Fail on a row that cannot be used, or a series without a label.")

    def __post_init__(self):
        super().__post_init__()
        if self.fold >= self.folds:
            raise ConfigError(f"data.fold is {self.fold}; must be less than data.folds, {self.folds}")
        for weight in self.weights:
            if not re.fullmatch(r".+=\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", weight):
                raise ConfigError(f"data.weights expects class=weight, got {weight!r}")


@dataclass(frozen=True, kw_only=True)
class HistoryConfig(DataConfig):
    """A named data set, or a table at `path` whose rows are in time."""

    name: str = ""
    path: str = file_setting()
    time: str = ""  # its column; "": one with a usual name, otherwise the order of the rows
    target: tuple[str, ...] = option(
        (), "The columns to forecast, comma-separated.", metavar="COLUMNS", shown="all numbers"
    )
    series: str = option("", "In a table of several series: the column of their names.", metavar="COLUMN")
    covariates: tuple[str, ...] = option(
        (), "Columns known in advance, such as holidays or prices, comma-separated.", metavar="COLUMNS"
    )
    every: str = option("", "Resample to this step: 15min, 1h, 1d, 1w, 1mo, 1y.", metavar="STEP", shown="as it is")
    aggregate: str = "mean"  # of the numbers of a resampled step: mean, sum or last
    calendar: bool = True  # whether missing times become gaps; False: rows are treated as equally spaced
    lookback: int = least(336, 2)  # rows the model reads
    horizon: int = option(96, "Rows to forecast.", metavar="N", shown="96", least=1)
    parts: tuple[float, ...] = (0.7, 0.1, 0.2)  # training, validation, test: shares of the rows, or numbers
    season: int = least(0, 0)  # period of the seasonal naive forecast, in rows; 0: estimated from the training set
    strict: bool = strict_option("Fail on a row that cannot be used.")

    def __post_init__(self):
        super().__post_init__()
        if len(self.parts) != 3 or min(self.parts) <= 0 or (sum(self.parts) > 1 + 1e-6 and min(self.parts) < 1):
            raise ConfigError(f"data.parts are {self.parts}; expected three shares that sum to 1, or numbers of rows")
        if self.every and not re.fullmatch(EVERY, self.every):
            raise ConfigError(f"data.every is {self.every!r}; expected a step such as 15min, 1h, 1d, 1w, 1mo or 1y")
        if self.aggregate not in AGGREGATES:
            raise unknown("aggregation", self.aggregate, AGGREGATES)


@dataclass(frozen=True, kw_only=True)
class AudioConfig(OwnData):
    """A named data set, or a `path`: a folder, a tar archive of one, or a table of files and labels."""

    name: str = ""
    label: str = label_option("In a table: the column of the class.")
    balanced: bool = False  # whether rare classes are sampled as often as common ones
    seconds: float = least(10.0, 0.1)  # longer clips are cut
    mels: int = least(40, 1)  # bands of the spectrogram
    masks: int = least(2, 0)  # spans of time, and of frequency, masked in training (Park et al. 2019)
    widest: float = share(0.2)  # the largest span, as a share of the clip or of the bands

    @property
    def frames(self) -> int:
        """Frames of the longest clip."""
        return round(self.seconds * RATE) // HOP
