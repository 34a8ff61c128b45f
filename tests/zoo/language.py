"""Bugs of language models: of reading with a cache, of rows and documents side by side, of published files."""

from tests.zoo.bug import bugs

LM = "contract/test_language_models.py"
LM_RAGGED = f"{LM}::test_rows_of_different_lengths_are_read_as_if_each_were_alone"
LM_CHUNKS = f"{LM}::test_reading_in_chunks_is_reading_at_once"
LM_DOCUMENTS = f"{LM}::test_documents_in_one_row_know_nothing_of_each_other"
LM_ROWS = f"{LM}::test_kept_rows_go_on_in_any_order_and_number"
GUESSING = "unit/generate/test_guessing.py"
GPT2 = "reference/test_gpt2.py::test_logits_and_gradients_are_equal"
LLAMA = "reference/test_layouts.py::test_outputs_and_gradients_are_equal[llama]"

LANGUAGE = [
    *bugs(
        "nn.masks",
        ("documents see each other", "Documents.__init__", "own.tril()", "torch.ones_like(own).tril()", LM_DOCUMENTS),
    ),
    *bugs(
        "nn.blocks",
        ("GPT-2 has the other GELU", "ACTIVATIONS", 'approximate="tanh"', 'approximate="none"', GPT2),
        ("gate and input of SwiGLU are swapped", "SwiGLU.forward", "self.act(gate) * up", "self.act(up) * gate", LLAMA),
    ),
    *bugs(
        "nn.linear",
        ("oneDNN forgets the bias", "by_onednn", "(x, weight, bias, ", "(x, weight, None, ", "unit/nn/test_linear.py"),
        ("gradients are asked of oneDNN", "linear", "torch.is_grad_enabled() or ", "", "unit/nn/test_linear.py"),
    ),
    *bugs(
        "nn.cache",
        (
            "all rows are written at the first one's place",
            "Past._ragged",
            "slots = where.clamp(max=self.capacity)",
            "slots = where[:1].expand_as(where).clamp(max=self.capacity)",
            LM_RAGGED,
        ),
        ("a row sees one slot too many", "Past._ragged", "UpTo(where, stop)", "UpTo(where + 1, stop)", LM_RAGGED),
        (
            "padding is counted as read",
            "Past.grow",
            "+= tokens if lengths is None else lengths",
            "+= tokens",
            LM_RAGGED,
        ),
        (
            "a chunk sees nothing of those before",
            "Past._straight",
            "<= where[:, None])",
            "== where[:, None])",
            LM_CHUNKS,
        ),
        (
            "memory that was never written is mixed in",
            "Past._ragged",
            "self.cache.clear(slice(self.stop, stop))",
            "pass",
            "unit/nn/test_cache.py",
        ),
        (
            "all heads are written into the first one's slots",
            "Cache.ragged",
            "torch.arange(rows * heads).view(rows, heads, 1)",
            "(torch.arange(rows) * heads).view(rows, 1, 1).expand(rows, heads, 1)",
            "unit/nn/test_cache.py",
        ),
    ),
    *bugs(
        "nn.positions",
        ("rotations turn the other way", "Rotary.rows", "(-sines, sines)", "(sines, -sines)", LLAMA),
        (
            "places go on over documents",
            "restarting",
            "return where - first",
            "return where.expand_as(first)",
            LM_DOCUMENTS,
        ),
        ("slopes fill up with the wrong half", "slopes", "[0::2]", "[1::2]", "unit/nn/test_positions.py"),
    ),
    *bugs(
        "nn.init",
        (
            "what adds to the stream is drawn as large as the rest",
            "gpt2_",
            "std=0.02 / math.sqrt(2 * layers) if adds else 0.02",
            "std=0.02",
            "reference/test_gpt2.py::test_weights_are_drawn_as_theirs_are",
        ),
    ),
    *bugs(
        "models.base",
        (
            "rows that fill the table up are words too",
            "LanguageModel.logits",
            "self.bias)[..., : self.config.vocab]",
            "self.bias)",
            f"{LM}::test_outputs_have_the_promised_shape",
        ),
        (
            "the lens forgets the last norm",
            "Decoder.lens",
            "return self.logits(self.norm(stream))",
            "return self.logits(stream)",
            f"{LM}::test_the_lens_of_the_last_layer_is_the_model_itself",
        ),
    ),
    *bugs(
        "models.rnn_lm",
        (
            "a recurrent net reads the padding",
            "RecurrentLM.read",
            "self.run(x, state.cells, None if lengths is None else lengths.clamp(min=1))",
            "self.run(x, state.cells)",
            LM_RAGGED,
        ),
        (
            "rows that stay take the states of others",
            "RecurrentState.select",
            "part[:, rows]",
            "part[:, rows.sort().values]",
            LM_ROWS,
        ),
    ),
    *bugs(
        "models.published.gpt2",
        (
            "a square matrix is not laid on its side",
            "GPT2Layout.to_theirs",
            "tensor.ndim == 2",
            'tensor.ndim == 2 and "attention.out" not in name',
            GPT2,
        ),
    ),
    *bugs(
        "data.blocks",
        (
            "the last target of every stretch is left out",
            "TextRows.batch",
            "counts[row, place : end - 1] = True",
            "counts[row, place : end - 2] = True",
            "unit/data/test_blocks.py",
        ),
        (
            "all records of a row are one document",
            "TextRows.batch",
            "documents[row, place:end] = document",
            "documents[row, place:end] = 1",
            "unit/data/test_blocks.py",
        ),
    ),
    *bugs(
        "data.records",
        (
            "what stands after the end of an answer is learned too",
            "encode_record",
            "learned += [answer and place <= last for place in range(len(new))]",
            "learned += [answer for place in range(len(new))]",
            "unit/data/test_records.py",
        ),
    ),
    *bugs(
        "nn.lora",
        (
            "merging forgets the scale",
            "LoraLinear.merged",
            "self.weight.double() + self.scale * low",
            "self.weight.double() + low",
            "unit/nn/test_lora.py",
        ),
    ),
    *bugs(
        "generate.sampling",
        (
            "every word of a draw gets the same noise",
            "gumbel",
            "+ keys * GAMMA",
            "+ 0 * keys",
            "unit/generate/test_sampling.py",
        ),
    ),
    *bugs(
        "generate.guessing",
        ("wrong guesses stay read", "GuessingRows.steps", "self.state.back(len(guesses) - right)", "pass", GUESSING),
        (
            "a guess after the right ones counts",
            "GuessingRows.steps",
            "count = right + 1",
            "count = right + 2",
            GUESSING,
        ),
        ("all guesses have one random number", "GuessingRows.steps", "0, where]", "0, where[:1]]", GUESSING),
    ),
    *bugs(
        "training.recorded",
        (
            "a recording divides by the first count",
            "RecordedStep.__call__",
            "here.count.fill_(count)",
            "pass",
            "unit/training/test_recorded.py",
        ),
        (
            "a recording reads its first batch again",
            "RecordedStep.__call__",
            "here.batch.take(batch)",
            "pass",
            "unit/training/test_recorded.py",
        ),
    ),
    *bugs(
        "metrics.perplexity",
        (
            "overlapping windows score what was scored before",
            "windows",
            "yield start, stop, done",
            "yield start, stop, start",
            "unit/metrics/test_perplexity.py",
        ),
    ),
]
