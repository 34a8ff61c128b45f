"""What is typed: values that are right, nearly right, and wrong in every way we could think of."""


def _words(text: str) -> list[str]:
    return text.split()


INTEGERS = [*_words("0 1 2 3 7 -1 100 1000 65536 1000000 1000000000 2147483648 9223372036854775807"),
            *_words("18446744073709551616 99999999999999999999999999 1e3 1.5 nan x ٣ 0x10"), "", " 5"]  # fmt: skip
FLOATS = [*_words("0 0.01 0.5 1 1.5 -1 1e-9 1e9 1e308 1e400 nan inf -inf x 1,5 100"), ""]
TEXTS = ["the cat", "", " ", "\n", "x", "naïve 日本語 😀", "caf\udce9", "[MASK]", "[MASK] " * 600, "word " * 5000,
         "x" * 70_000, "-", "--", "hours=3", "hours=", "=,=", "hours=x,school=,other=1", "a\tb", "\u202e\ufeff\u200b",
         "a\x01b", "<unk> </s>", "\\n", "%s %d {} {0}", "data/reviews.csv", "~", "ß" * 300]  # fmt: skip
PLACES = ["", ".", "..", "/", "~", "~nouser/x", "~/notes.txt", "-", "nowhere.csv", "no/where/at/all.csv", "data",
          "data/empty", "data/loop", "data/null", "x" * 300, "caf\udce9.csv", "data/reviews.csv/x", "runs", "a\tb", "*",
          "http://localhost/x.csv", "data/*.csv", "/proc/self/mem"]  # fmt: skip
WRITTEN = ["out.csv", "out.npy", "out.png", "out.html", "out.txt", "out", "-", "data", ".", "data/reviews.csv", "",
           "no/such/x.csv", "data/loop", "data/gone.txt", "data/linked.csv", "data/null", "data/full", "caf\udce9.csv",
           "x" * 300 + ".png", "~nouser/x.csv", "out.PNG", "out.pdf.gz", "caf\udce9.png", "out.svg"]  # fmt: skip
FOLDERS = ["new", "new/x", "a/b/c", "./", ".", "..", "../home/project", "../home/", "../home/project/", "gpt", "*", "",
           "runs/gpt", "several", "x" * 300, "caf\udce9", "~nouser/x", "data/empty/", "data/reviews.csv/",
           "data/null/x", "new run", "-x", "data/full/x", "data/loop/x"]  # fmt: skip
COLUMNS = [*_words("review sentiment label text class value time id close volume passed hours 1 2 0 -1 99 x"), "",
           "caf\udce9", "close,volume"]  # fmt: skip
ARCHS = [*_words("transformer lstm gru rnn lstm-bottleneck gpt llama bert vit conv mlp conv3 x , rnn,lstm RNN"), ""]
TASKS = [*_words("translate lm mlm classify pair tag image table caption series fill-series forecast audio summarise"),
         *_words("x Lm chat embed recipe.py data/recipe.py data/broken.py data/text.txt"), ""]  # fmt: skip
CHOICES = {
    "arch": ARCHS,
    "what": TASKS,
    "task": TASKS,
    "name": FOLDERS,
    "to": ["hf", "gguf", "", "HF"],
    "size": [*_words("tiny small base big gpt2 medium large xl mini ti s b l x"), ""],
    "device": [*_words("cpu auto cuda cuda:7 cuda:x tpu CPU cpu:0 meta"), ""],
    "pooling": ["mean", "cls", "max", "x", ""],
    "tokens": ["bpe", "chars", "bytes", "x", ""],
    "tokenize": [*_words("13a none intl char zh auto ja-mecab ko-mecab flores200 spm x"), ""],
    "language": ["en", "de", "xx", "", "english"],
    "layer": [*_words("0 -1 1 2 last4 99 -99 x"), ""],
    "port": ["0", "1", "65536", "-1", "x"],
}
SETTINGS = [INTEGERS, INTEGERS, FLOATS, ["true", "false", "x", "", "a,b", "0.1,0.9", "constant", "lines"]]
BYTES = [b"\0", b"\r", b"\xff", b'"', b",", b"\t", b"nan", b"1e999", b"9" * 40, b"[[[[", b"{", b"\n\n",
         b"\xef\xbb\xbf", b"\xed\xa0\x80", b"-1", b"'", b"\x1f\x8b", b"\\ud800", b";", b"null", b"\xe2\x80\xa8",
         b"x" * 5000]  # fmt: skip
JSON = [None, [], {}, "", "x", -1, 0, 1, 3, 1.5, 10**6, 10**9, 2**31, 2**63, 10**30, True, [1], {"a": 1}, float("nan"),
        float("inf"), "../../x", "/etc", [[[[]]]], "😀", "\ud800"]  # fmt: skip
TYPED = [b"", b"", b"the cat\n\nthe dog\n", b"\xff\xfe\n", b"x" * 50_000, b"the cat\0\r\n", b"\n" * 99]
