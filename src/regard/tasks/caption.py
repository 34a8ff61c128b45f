"""Caption: an image in, a sentence out."""

import dataclasses
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.folders import silent
from regard.data.settings import Augment, CaptionsConfig
from regard.data.tokenizers import files_of
from regard.tasks.base import Arch, Card, Fit, Preset, Say, Task
from regard.tasks.image import image_inputs, patch_for, write_preprocessor
from regard.tasks.presets import fine_tuning, presets_of
from regard.tasks.served import BEAM, CANDIDATES, N_BEST
from regard.tasks.use import Inputs, Options, TestSet, Verdict
from regard.ticks import Console
from regard.training.settings import Optim, Schedule
from regard.words import count, some, table

if TYPE_CHECKING:
    from regard.data.contents import Contents
    from regard.metrics.compare import Sums
    from regard.training.run import Run

CAPTIONED = {"cpu": 100, "cuda": 1000}  # validation images captioned at each evaluation, at most
AUGMENT = Augment(crop=0.08, flip=True)
SIDES = re.compile(r"\b(left|right)\b", re.IGNORECASE)


class Caption(Task):
    name, trains_on = "caption", "captions"
    summary = "a sentence for each image"
    settings = CaptionsConfig
    options = ("valid", "images")
    data_help = "A table of paths and captions, or a name."
    examples = (
        "regard train caption --data captions.tsv --images FOLDER",
        "regard train caption --data flickr8k --arch transformer,lstm",
    )
    archs = {"transformer": Arch("captioner"), "lstm": Arch("show_attend_tell")}
    presets = presets_of("caption")
    lora_targets = ("vision.layers.*", "decoder.*", "bridge", "readout")
    starts, finetune_length = ("captioner", "gpt_captioner", "show_attend_tell"), "5 epochs"
    card = Card(pipeline="image-to-text", title="An image captioner", use="caption {} picture.png")
    reads = "images"
    family, views = "captioner", ()
    purpose = "caption images"
    verbs = ("caption",)
    search = predict_takes = ("beam",)
    evaluate_takes = ("data", "beam", "out", "strict")
    request_settings = {"beam": BEAM, "n_best": N_BEST}
    answer_schema = CANDIDATES
    compare_takes = ("data", "beam")
    unit = "images"
    draws_attention = True

    def fits(self, contents: "Contents") -> Fit | None:
        from regard.data.captions import CAPTIONS

        files, caption = contents.holding("files"), contents.named(CAPTIONS)
        if not files or caption is None or caption.holds != "texts":
            return None
        return self.fit_for(contents, f"images in {files[0].name!r}, captions in {caption.name!r}")

    def complete(self, data: CaptionsConfig, preset: Preset) -> CaptionsConfig:
        augment = AUGMENT if data.augment == Augment() else data.augment
        return dataclasses.replace(super().complete(data, preset), augment=augment)

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        patch = patch_for(data.size, 12, halved=True)
        return {"vocab": data.vocab, "image": data.size, "max_length": data.max_length, "patch": patch}

    def finetune_run(self, start: Path, data: CaptionsConfig, device: str, lora: int) -> "Run":
        """From a captioner, with its own image size and tokenizer."""
        from regard.data.framing import read_range
        from regard.models.published import read_config
        from regard.training.run import Run

        config: Any = read_config(start)
        mean, std = read_range(start) or (config.mean, config.std)
        where = str(start.absolute())
        length = min(data.max_length, config.max_length)
        own: Any = dict(tokenizer=where, vocab=config.vocab, size=config.image, max_length=length)
        return Run(
            **fine_tuning(self.name, start, device, lora),
            model=dataclasses.replace(config, mean=mean, std=std),
            data=dataclasses.replace(self.complete(data, self.preset(self.arch, device)), **own),
            optim=Optim(lr=1e-3 if lora else 1e-4, betas=(0.9, 0.98), eps=1e-8),
            schedule=Schedule(kind="linear", warmup=50),
            epochs=5.0,
            batch=32,
            smoothing=0.1,
        )

    def settings_from_data(self, run: "Run") -> dict[str, Any]:
        data, model = run.data, run.model
        own = {"vocab": data.vocab, "image": data.size, "max_length": max(data.max_length, model.max_length)}
        if data.size != model.image:
            own["patch"] = patch_for(data.size, model.encoder.grid, halved=model.stem == "conv")
        return own

    def read(self, run: "Run", say: Say) -> Any:
        from regard.data.captions import load_captions

        data = load_captions(run.data, say)
        say(data.report())
        return data

    def fit(self, run: "Run", data: Any) -> "Run":
        if run.start:
            return run
        mean, std = data.spread()
        return run.with_model(vocab=data.tokenizer.size, mean=mean, std=std)

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.caption import CaptionLoss as Objective

        return Objective(run.smoothing)

    def source(self, run: "Run", data: Any, part: str, device: str) -> Any:
        from regard.data.captions import CaptionSource

        augment = run.data.augment if part == "train" else None
        return CaptionSource(getattr(data, part), data.tokenizer, run.data.max_length, augment, device)

    def show(self, run: "Run", data: Any, batch: Any, row: int) -> str:
        image, ids = batch.inputs[0][row], batch.targets[row]
        pieces = some(map(data.tokenizer.piece, ids[ids >= 0].tolist()))
        return f"{' × '.join(map(str, image.shape))} pixels → {pieces}"

    def metric(self, run: "Run", data: Any, device: str) -> Callable[[Any], dict[str, float]]:
        """BLEU-4 and CIDEr of greedy captions of validation images."""
        from regard.metrics.captions import score_captions
        from regard.predictors import ImageCaptioner

        images = CAPTIONED[device.split(":")[0]]

        def metric(model: Any) -> dict[str, float]:
            captions = ImageCaptioner(model, data.tokenizer, device).caption(data.valid.pixels[:images], beam=1)
            scores = score_captions([h.text for h in captions], data.valid.captions[:images])
            return {"bleu": scores.bleu, "cider": scores.cider}

        return metric

    def remarks(self, run: "Run", data: Any, loader: Any) -> Iterable[str]:
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')}"
        if run.data.augment.flip and (share := sided(data.train.captions)) > 0.01:
            yield (
                f"{share:.0%} of the captions mention left or right, and images are mirrored half of the time; "
                "if that matters: --set data.augment.flip=false"
            )

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        pixels = torch.zeros(run.batch, *run.model.shape, dtype=torch.uint8)
        words = torch.zeros(run.batch, run.data.max_length, dtype=torch.long)
        return Samples((pixels, words), words, np.arange(run.batch))

    def generation(self, run: "Run", data: Any) -> dict[str, Any]:
        eos = data.tokenizer.eos
        pad = getattr(run.model, "start", data.tokenizer.pad)  # GPT-2 has no padding token
        return {"eos_token_id": eos, "pad_token_id": pad, "decoder_start_token_id": pad,
                **({} if pad == eos else {"bad_words_ids": [[pad]]}),
                "max_length": run.data.max_length}  # fmt: skip

    def write_files(self, folder: Path, run: "Run", data: Any) -> None:
        if run.start:
            for path in files_of(Path(run.data.tokenizer)):
                shutil.copyfile(path, folder / path.name)
        else:
            data.tokenizer.save(folder, run.data.max_length)
        write_preprocessor(folder, run.model)

    def serves(self, config: Any) -> bool:
        from regard.models.registry import model_type

        return model_type(config) in self.starts

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.data.captions import load_pieces
        from regard.data.framing import read_framing
        from regard.predictors import ImageCaptioner
        from regard.predictors.images import scale_of

        predictor = ImageCaptioner(model, load_pieces(folder), device)
        predictor.framing = read_framing(folder, model.config.shape[1])
        model.vision.scale = scale_of(folder, model.vision.scale)
        return predictor

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> Any:
        return predictor.images(words)

    def text(self, answer: Any) -> str:
        if len(answer.candidates) == 1:
            return answer.text
        return table([(f"{h.score:.3f}", h.text) for h in answer.candidates])

    def explain(self, predictor: Any, one: Any, answer: Any) -> Any:
        """For each word its attention to the patches of the image, as rows and columns."""
        looks = predictor.looks(one[0], answer.candidates[0].ids)
        return [{"word": word, "patches": patches.round(4).tolist()} for word, patches in looks]

    def to_json(self, answer: Any) -> Any:
        return [{"text": h.text, "score": h.score, "log_probability": h.log_probability} for h in answer.candidates]

    def row(self, predictor: Any, answer: Any) -> dict[str, Any]:
        return {"caption": "" if answer is None else answer.text}

    def draw_attention(self, predictor: Any, words: Sequence[str], inputs: Any, answers: Any, path: str) -> Path:
        from regard.data.pixels import read_image
        from regard.explain.rollout import draw_words

        looks = predictor.looks(inputs[0], answers[0].candidates[0].ids)
        return draw_words(read_image(Path(words[0]))[0], [word for word, _ in looks], [seen for _, seen in looks], path)

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        return image_inputs(file, predictor.images, console)

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        from regard.data.captions import captioned, load_captions
        from regard.data.images import pixel_digests

        if data := options.data:
            config = CaptionsConfig(path=data, size=predictor.model.config.shape[1], strict=options.strict)
            part, notes = captioned(Path(data), Path(data).parent, config, console.say)
            for line in notes:
                console.say(line)
        else:
            part = load_captions(self.own_data(folder), console.say).valid
        contents = pixel_digests(part.pixels) if data else []
        return TestSet(
            on=data or "its own validation set", inputs=part.pixels, targets=part.captions, contents=contents
        )

    def training_contents(self, predictor: Any, data: CaptionsConfig) -> Iterable[bytes]:
        from regard.data.captions import load_captions
        from regard.data.images import pixel_digests

        return pixel_digests(load_captions(data, silent).train.pixels)

    def captions(self, predictor: Any, test: TestSet, options: Options, console: Console) -> list[str]:
        console.say(f"captioning {len(test.targets):,} images of {test.on}")
        with console.progress("images", len(test.targets)):
            return [h.text for h in predictor.caption(test.inputs, beam=options.beam)]

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        """BLEU-4 and CIDEr, compared with the same captions assigned to other images."""
        from regard.metrics.captions import score_captions

        test = self.test_set(predictor, folder, options, console)
        captions, side = self.captions(predictor, test, options, console), predictor.model.config.shape[1]
        scores = score_captions(captions, test.targets)
        other = score_captions([*captions[1:], captions[0]], test.targets)  # the same captions, for the wrong images
        values = {"beam": options.beam, "pixels": side, **dataclasses.asdict(scores)}
        values |= {"bleu_of_other_images": other.bleu, "cider_of_other_images": other.cider}
        text = f"{scores}\nbaseline, captions of other images: BLEU-4 {other.bleu:.1f}, CIDEr {other.cider:.3f}"
        detail = f"{len(captions):,} images of {side} x {side} pixels, beam {options.beam}"
        return Verdict(on=test.on, detail=detail, values=values, text=text, outputs=captions, contents=test.contents)

    def outcomes(self, predictor: Any, test: TestSet, options: Options, console: Console) -> "Sums":
        from regard.metrics.captions import ciders
        from regard.metrics.compare import Sums

        each = ciders(self.captions(predictor, test, options, console), test.targets)
        return Sums(metric="CIDEr", above=each, below=[1.0] * len(each), scale=1.0)


def sided(captions: list[list[str]]) -> float:
    """The share of the captions that mention left or right, in English."""
    every = [caption for group in captions for caption in group]
    return sum(SIDES.search(caption) is not None for caption in every) / max(1, len(every))
