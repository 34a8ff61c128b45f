"""The data sets regard knows by name: what they are, where they come from, on which terms."""

from dataclasses import dataclass

from regard.config import unknown


@dataclass(frozen=True)
class Archive:
    """A file inside a source distribution on the package index, pinned by version and hash."""

    package: str
    version: str
    sha256: str
    size: int
    member: str  # a zip inside the archive
    text: str  # the text file inside that zip


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalog. `archive` is None for sets that a user has to bring."""

    name: str
    about: str
    licence: str
    attribution: str
    size: str  # to download, or on disk for sets that a user brings
    source: str  # language, and the ending of the files
    target: str
    kind: str = "pairs"
    archive: Archive | None = None
    own_layout: str = ""  # path under $REGARD_DATA, with {part} and {language}
    split: str = "text"  # what `PairsConfig.split` wants

    @property
    def where(self) -> str:
        """Where it comes from, in a few words."""
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


CATALOG = {
    d.name: d
    for d in (
        _tatoeba("fr", "French", "fra", "178,009 pairs"),
        _tatoeba("es", "Spanish", "spa", "124,547 pairs"),
        _multi30k("de", "German"),
        _multi30k("de", "German", tokenised=True),
        _multi30k("fr", "French"),
    )
}


def find(name: str) -> Dataset:
    """The data set of this name, whatever its case; otherwise the error names the nearest one."""
    if name.lower() not in CATALOG:
        raise unknown("data set", name, CATALOG)
    return CATALOG[name.lower()]
