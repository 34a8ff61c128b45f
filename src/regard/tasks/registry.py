"""All tasks by name. No other module lists them."""

from regard.config import unknown
from regard.tasks.audio import Audio
from regard.tasks.base import Task
from regard.tasks.caption import Caption
from regard.tasks.classify import Classify, Pair
from regard.tasks.embed import Embed
from regard.tasks.forecast import Forecast
from regard.tasks.image import Image
from regard.tasks.lm import LanguageModelling
from regard.tasks.mlm import Infill, MaskedLanguageModelling
from regard.tasks.multilabel import MultiLabel, MultiLabelImage
from regard.tasks.next_sentence import NextSentence
from regard.tasks.regress import Regress, RegressImage, RegressSeries, RegressTable
from regard.tasks.series import FillSeries, Series
from regard.tasks.summarise import Shorten, Summarise
from regard.tasks.table import Table
from regard.tasks.tag import Tag
from regard.tasks.transcribe import Transcribe
from regard.tasks.translate import Translate
from regard.tasks.zero_shot import ZeroShot

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Translate(),
        LanguageModelling(),
        Summarise(),
        MaskedLanguageModelling(),
        Classify(),
        Pair(),
        Tag(),
        Image(),
        Table(),
        Caption(),
        Series(),
        FillSeries(),
        Forecast(),
        Audio(),
        MultiLabel(),
        MultiLabelImage(),
        Regress(),
        RegressTable(),
        RegressImage(),
        RegressSeries(),
        Embed(),
        NextSentence(),
        ZeroShot(),
        Shorten(),
        Infill(),
        Transcribe(),
    )
}


def get(name: str) -> Task:
    if name.lower() not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name.lower()]
