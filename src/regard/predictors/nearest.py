"""The nearest of many vectors by cosine: all of them for few, a scan of one bit a number and exact scores for many."""

import numpy as np

EXACT = 20_000  # vectors up to which every cosine is computed
SHARE, LEAST = 200, 5_000  # candidates that are scored exactly: one in so many vectors, and so many at least
CHUNK = 1 << 16  # vectors at a time


class Nearest:
    """Vectors of length 1, N D, to search in. They may be a memory map: of many, a query reads the candidates only.

    Many are first compared by the signs of their numbers about the mean, whose Hamming distance follows the angle
    (Charikar 2002): 48 bytes instead of 1,536 for 384 numbers. The nearest of them are scored exactly.
    """

    def __init__(self, vectors: np.ndarray):
        self.vectors = vectors
        self.codes: np.ndarray | None = None
        if len(vectors) > EXACT:
            rows = np.linspace(0, len(vectors) - 1, EXACT).astype(np.int64)
            self.mean = np.asarray(vectors[rows]).mean(0)
            chunks = range(0, len(vectors), CHUNK)
            self.codes = np.concatenate([self.encode(vectors[i : i + CHUNK]) for i in chunks], axis=1)

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """The signs of N D numbers, D/64 N words of 64 bits: a word of all vectors lies together."""
        bits = np.packbits(np.asarray(vectors) > self.mean, axis=1)
        padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))
        return np.ascontiguousarray(padded.view(np.uint64).T)

    def search(self, query: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the nearest vectors and their cosines, nearest first; equal ones in the order of the rows."""
        rows = self.candidates(query, max(top, LEAST, len(self.vectors) // SHARE))
        scores = self.vectors @ query if rows is None else self.vectors[rows] @ query
        order = np.argsort(-scores, kind="stable")[:top]
        return (order if rows is None else rows[order]), scores[order]

    def candidates(self, query: np.ndarray, number: int) -> np.ndarray | None:
        """At least so many rows, by Hamming distance; None: all of them."""
        if self.codes is None or number >= len(self.vectors):
            return None
        code, apart = self.encode(query[None]), np.zeros(len(self.vectors), np.uint16)
        for start in range(0, len(apart), CHUNK):  # what a core's cache holds
            part = apart[start : start + CHUNK]
            for words, word in zip(self.codes[:, start : start + CHUNK], code, strict=True):
                part += np.bitwise_count(words ^ word)
        enough = np.cumsum(np.bincount(apart)) >= number
        return np.flatnonzero(apart <= enough.argmax())
