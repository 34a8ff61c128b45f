"""Bugs of images, tables and captions: where a pixel goes, who is held out, what a caption is compared with."""

from tests.zoo.bug import bugs

ALL = "contract/test_contract.py"
VIT, CONTRACT, CAPTIONERS = (
    "reference/test_vit.py",
    ("contract/test_images.py", ALL),
    ("contract/test_captioners.py", ALL),
)
AUGMENT, DATA, TABLES = "unit/data/test_augment.py", "unit/data/test_images.py", "unit/data/test_features.py"
SPLIT, READER = "unit/data/test_split.py", "unit/data/test_tables.py"
PLAIN, RECALL = "unit/lab/test_plain_text.py", "unit/lab/test_recall.py"
CIDER = "unit/metrics/test_captions.py"

IMAGES = [
    *bugs(
        "models.vit",
        (
            "rows and columns of a patch are mixed up",
            "PatchStem.forward",
            "permute(0, 2, 4, 1, 3, 5)",
            "permute(0, 2, 4, 1, 5, 3)",
            VIT,
        ),
        ("patches have no places", "ViT.forward", "x + self.places(", "x + 0 * self.places(", CONTRACT),
        ("bytes are not centred", "Scale.forward", "(pixels / 255 - self.mean)", "(pixels / 255)", CONTRACT),
        ("the last patch stands for the image", "ViT.summary", "hidden[:, 0]", "hidden[:, -1]", VIT),
    ),
    *bugs(
        "nn.positions",
        (
            "a patch knows its row twice",
            "Sine2d.forward",
            "self.line[place % self.side]",
            "self.line[place // self.side]",
            VIT,
        ),
    ),
    *bugs(
        "models.plain",
        (
            "a filter sees further than told",
            "Conv.__init__",
            "padding=c.kernel // 2",
            "padding=c.kernel // 2 * 2, dilation=2",
            CONTRACT,
        ),
    ),
    *bugs(
        "lab.plain_text",
        (
            "filters see the words after",
            "ConvText.forward",
            "F.pad(x, (self.before, 0))",
            "F.pad(x, (0, self.before))",
            PLAIN,
        ),
        (
            "a convolution is said to see too far",
            "ConvText.__init__",
            "1 + layers * (kernel - 1)",
            "1 + layers * kernel",
            PLAIN,
        ),
        ("a dense net reads backwards", "DenseText.forward", "self.token(ids))[", "self.token(ids.flip(1)))[", PLAIN),
    ),
    *bugs(
        "lab.recall",
        ("a dense net is made for the longest text", "recall", "if arch == FIXED_LENGTH", "if arch is None", RECALL),
        (
            "weights are those of the longest text",
            "parameters",
            "tiny_model(arch, d + 1,",
            "tiny_model(arch, 1001,",
            RECALL,
        ),
    ),
    *bugs(
        "data.augment",
        (
            "labels are not mixed as the images are",
            "augmented",
            "shares.lerp(shares.flip(0), 1 - keep)",
            "shares",
            AUGMENT,
        ),
        (
            "CutMix reports the requested share, not the pasted one",
            "cut_in",
            "1 - (bottom - top) * (right - left) / (H * W)",
            "keep",
            AUGMENT,
        ),
        ("one crop for the whole batch", "cropped", "(2, B, 1)", "(2, 1, 1)", AUGMENT),
        ("rectangles are too large", "erased", "(0.02 + 0.31 * u[0])", "(0.5 + 0.5 * u[0])", AUGMENT),
    ),
    *bugs(
        "data.images",
        (
            "held-out images are copied",
            "Images.take",
            "Chosen(self.pixels, np.flatnonzero(which))",
            "self.pixels[which]",
            DATA,
        ),
        (
            "the rest of a file is not kept",
            "resident",
            "range(0, len(pixels), AT_ONCE)",
            "range(0, AT_ONCE, AT_ONCE)",
            DATA,
        ),
        (
            "chance comes from elsewhere",
            "ImageSource.batch",
            "self.augment, rng)",
            "self.augment, np.random.default_rng())",
            DATA,
        ),
    ),
    *bugs(
        "data.pixels",
        ("a photograph lies on its side", "read_image", "image = ImageOps.exif_transpose(image)", "pass", DATA),
        ("what is transparent is black", "read_image", '"white"', '"black"', DATA),
    ),
    *bugs(
        "data.split",
        (
            "equal content is on both sides",
            "hold_out",
            "[unit in chosen for unit in digests]",
            "[i % 10 == 0 for i in range(len(digests))]",
            SPLIT,
        ),
        (
            "series of no class move the others",
            "_chosen",
            "lambda label: (not label, label)):\n        units",
            "lambda label: (bool(label), label)):\n        units",
            SPLIT,
        ),
        ("the only example of a class is held out", "_chosen", "if len(units) > 1}", "}", SPLIT),
        ("every class is rounded on its own", "_chosen", "(before, before + len(units))", "(0, len(units))", SPLIT),
        (
            "one of ten is enough",
            "_chosen",
            "min(2 if len(digests) >= MANY else 1, total // 2)",
            "min(1, total // 2)",
            SPLIT,
        ),
    ),
    *bugs(
        "data.cells",
        ("a dash is no missing number", "MISSING", '"none", "-", "?")', '"none", "?")', READER),
    ),
    *bugs(
        "data.tables",
        ("a file name is a header", "_is_header", "(*AUDIO, *IMAGES)", "()", READER),
    ),
    *bugs(
        "data.features",
        ("a missing number is 0", "Feature.encode", "numbers, self.usual)", "numbers, 0.0)", TABLES),
        ("columns go by their order", "encode", '[row.get(c.name, "") for', "[next(iter(row.values())) for", TABLES),
    ),
    *bugs(
        "models.captioner",
        (
            "the LSTM starts without the image",
            "ShowAttendTell.encode",
            "memory.mean(1, keepdim=True)",
            "0 * memory[:, :1]",
            CAPTIONERS,
        ),
    ),
    *bugs(
        "metrics.captions",
        ("a word said thrice counts thrice", "angle", "min(x, theirs[gram])", "x", CIDER),
        ("every word tells as much", "ciders", "images - math.log(max(1, seen[gram]))", "1.0", CIDER),
        ("lengths do not matter", "ciders", "-(apart**2)", "-0 * (apart**2)", CIDER),
    ),
]
