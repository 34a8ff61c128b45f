"""Bugs of BERT: of padded and packed rows, of heads and published files, of pieces and of vectors."""

from tests.zoo.bug import bugs

BERT = "contract/test_bert.py"
EMBEDDER = "contract/test_embedder.py"
PADDED = "reference/test_bert.py::test_padded_outputs_and_gradients_are_equal"
PACKED = f"{BERT}::test_packed_texts_know_nothing_of_each_other"
PACKED_VECTORS = f"{EMBEDDER}::test_packed_texts_have_the_same_vectors"
BY_HAND = f"{EMBEDDER}::test_vectors_are_those_worked_out_by_hand_in_any_company"

ENCODER = [
    *bugs(
        "models.bert",
        (
            "places of packed texts go on",
            "Bert.places",
            "return where - starts[owners(starts, size)], Packed(",
            "return where, Packed(",
            PACKED,
        ),
        (
            "packed texts see each other",
            "Bert.places",
            "(starts, size, self.config.max_length)",
            "(starts[[0, -1]], size, 0)",
            PACKED,
        ),
        (
            "sentence numbers are forgotten",
            "Bert.forward",
            "numbered = sentences is not None and",
            "numbered = 0 and",
            f"{BERT}::test_order_and_sentence_matter",
        ),
        (
            "the sum of embeddings is not normed",
            "Bert.forward",
            "self.drop(self.norm(compute_dtype(x)))",
            "self.drop(compute_dtype(x))",
            PADDED,
        ),
        (
            "the pooler has no tanh",
            "Bert.pooled",
            "FAMILIES[self.config.family](self.needed(self.pooler",
            "(self.needed(self.pooler",
            PADDED,
        ),
        (
            "the masked-word head has no activation",
            "MaskedWordHead.forward",
            "self.norm(self.act(self.dense(x)))",
            "self.norm(self.dense(x))",
            PADDED,
        ),
        (
            "a classifier reads [CLS] without the pooler",
            "Bert.scores",
            "self.pooled(hidden) if self.pooler is not None else hidden",
            "hidden",
            PADDED,
        ),
    ),
    *bugs(
        "nn.masks",
        (
            "padding is part of the mean",
            "pooled",
            "hidden.masked_fill(~real, 0.0).sum(1) / lengths[:, None]",
            "hidden.mean(1)",
            BY_HAND,
        ),
    ),
    *bugs(
        "nn.masks",
        (
            "the last token of a text is the next one's",
            "owners",
            "where, right=True) - 1",
            "where) - 1",
            PACKED,
        ),
    ),
    *bugs(
        "nn.blocks",
        (
            "BERT's norms have the eps of others",
            "EncoderLayer.__init__",
            "self.norm2 = Norm(width, eps)",
            "self.norm2 = Norm(width)",
            PADDED,
        ),
    ),
    *bugs(
        "models.published.bert",
        (
            "queries and keys change places in files",
            "BertLayout.tensors",
            '"query", "key"',
            '"key", "query"',
            PADDED,
        ),
    ),
    *bugs(
        "models.published.layout",
        (
            "labels are sorted as text",
            "read_labels",
            "sorted((int(i), label)",
            "sorted((str(i), label)",
            "reference/test_bert.py::test_labels_are_theirs_in_the_order_of_their_numbers",
        ),
    ),
    *bugs(
        "data.tokenizers.encoder",
        (
            "the second sentence has number 0 too",
            "EncoderTokenizer._assembled",
            "sentences += [number] * (n + len(end))",
            "sentences += [0] * (n + len(end))",
            "unit/data/tokenizers/test_wordpiece.py",
        ),
    ),
    *bugs(
        "data.tokenizers.wordpiece",
        (
            "characters get their numbers by chance",
            "WordPiece.train",
            ", *characters, *(INSIDE + c for c in characters)]",
            "]",
            "unit/data/tokenizers/test_wordpiece.py::test_the_same_lines_give_the_same_vocabulary_in_every_process",
        ),
    ),
    *bugs(
        "predictors.embedder",
        (
            "vectors come back in the order of their lengths",
            "Embedder.features",
            "vectors[rows] = part",
            "vectors[sorted(rows)] = part",
            BY_HAND,
        ),
        (
            "a packed text is divided by all texts' tokens",
            "packed_pooled",
            "starts.diff()[:, None]",
            "starts[-1]",
            PACKED_VECTORS,
        ),
        (
            "a packed text's first token is the last one before it",
            "packed_pooled",
            "hidden[0, starts[:-1]]",
            "hidden[0, starts[:-1] - 1]",
            PACKED_VECTORS,
        ),
    ),
    *bugs(
        "nn.packed",
        ("gelu is taken twice", "pack_", 'part.set_submodule("act", nn.Identity())', "pass", "unit/nn/test_packed.py"),
    ),
]
