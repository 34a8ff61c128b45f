"""Bugs of images, tables and captions: where a pixel goes, who is held out, what a caption is compared with."""

from tests.zoo.bug import bugs

VIT, CONTRACT, CAPTIONERS = "reference/test_vit.py", "contract/test_images.py", "contract/test_captioners.py"
AUGMENT, DATA, TABLES = "unit/data/test_augment.py", "unit/data/test_images.py", "unit/data/test_features.py"
SPLIT, READER = "unit/data/test_split.py", "unit/data/test_tables.py"
PLAIN, RECALL = "unit/lab/test_plain_text.py", "unit/lab/test_recall.py"
CIDER = "unit/evaluate/test_captions.py"

IMAGES = [
    *bugs(
        "models/vit.py",
        ("rows and columns of a patch are mixed up", "permute(0, 2, 4, 1, 3, 5)", "permute(0, 2, 4, 1, 5, 3)", VIT),
        ("patches have no places", "x + self.place(torch", "x + 0 * self.place(torch", CONTRACT),
        ("bytes are not centred", "(pixels / 255 - self.mean)", "(pixels / 255)", CONTRACT),
        ("the last patch stands for the image", "hidden[:, 0]", "hidden[:, -1]", VIT),
    ),
    *bugs(
        "nn/positions.py",
        ("a patch knows its row twice", "self.line[place % self.side]", "self.line[place // self.side]", VIT),
    ),
    *bugs(
        "models/plain.py",
        ("a filter sees further than told", "padding=c.kernel // 2", "padding=c.kernel // 2 * 2, dilation=2", CONTRACT),
    ),
    *bugs(
        "lab/plain_text.py",
        ("filters see the words after", "F.pad(x, (self.before, 0))", "F.pad(x, (0, self.before))", PLAIN),
        ("a convolution is said to see too far", "1 + layers * (kernel - 1)", "1 + layers * kernel", PLAIN),
        ("a dense net reads backwards", "self.token(ids))[", "self.token(ids.flip(1)))[", PLAIN),
    ),
    *bugs(
        "lab/recall.py",
        ("a dense net is made for the longest text", "if arch == FIXED_LENGTH", "if arch is None", RECALL),
        ("weights are those of the longest text", "tiny_model(arch, d + 1,", "tiny_model(arch, 1001,", RECALL),
    ),
    *bugs(
        "data/augment.py",
        ("labels are not mixed as the images are", "shares.lerp(shares.flip(0), 1 - keep)", "shares", AUGMENT),
        ("what was cut in is told as what was asked", "1 - (bottom - top) * (right - left) / (H * W)", "keep", AUGMENT),
        ("one crop for the whole batch", "(2, B, 1)", "(2, 1, 1)", AUGMENT),
        ("rectangles are too large", "(0.02 + 0.31 * u[0])", "(0.5 + 0.5 * u[0])", AUGMENT),
    ),
    *bugs(
        "data/images.py",
        ("held-out images are copied", "Chosen(self.pixels, np.flatnonzero(which))", "self.pixels[which]", DATA),
        ("the rest of a file is not kept", "range(0, len(pixels), AT_ONCE)", "range(0, AT_ONCE, AT_ONCE)", DATA),
        ("chance comes from elsewhere", "self.augment, rng)", "self.augment, np.random.default_rng())", DATA),
    ),
    *bugs(
        "data/pixels.py",
        ("a photograph lies on its side", "image = ImageOps.exif_transpose(image)", "pass", DATA),
        ("what is transparent is black", '"white"', '"black"', DATA),
    ),
    *bugs(
        "data/split.py",
        (
            "equal content is on both sides",
            "[unit in chosen for unit in digests]",
            "[i % 10 == 0 for i in range(len(digests))]",
            SPLIT,
        ),
        (
            "series of no class move the others",
            "lambda label: (not label, label)):\n        units",
            "lambda label: (bool(label), label)):\n        units",
            SPLIT,
        ),
        ("the only example of a class is held out", "if len(units) > 1}", "}", SPLIT),
        ("every class is rounded on its own", "(before, before + len(units))", "(0, len(units))", SPLIT),
        ("one of ten is enough", "min(2 if len(digests) >= MANY else 1, total // 2)", "min(1, total // 2)", SPLIT),
    ),
    *bugs(
        "data/cells.py",
        ("a dash is no missing number", '"none", "-", "?")', '"none", "?")', READER),
    ),
    *bugs(
        "data/tables.py",
        ("a file name is a header", "(*IMAGES, *SOUNDS)", "()", READER),
    ),
    *bugs(
        "data/features.py",
        ("a missing number is 0", "numbers, self.usual)", "numbers, 0.0)", TABLES),
        ("columns go by their order", 'row.get(c.name, "")', "next(iter(row.values()))", TABLES),
    ),
    *bugs(
        "models/captioner.py",
        ("the LSTM starts without the image", "memory.mean(1, keepdim=True)", "0 * memory[:, :1]", CAPTIONERS),
    ),
    *bugs(
        "evaluate/captions.py",
        ("a word said thrice counts thrice", "min(x, theirs[gram])", "x", CIDER),
        ("every word tells as much", "images - math.log(max(1, seen[gram]))", "1.0", CIDER),
        ("lengths do not matter", "-(apart**2)", "-0 * (apart**2)", CIDER),
    ),
]
