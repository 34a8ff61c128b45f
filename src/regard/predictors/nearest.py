"""Nearest neighbours by cosine: exact for few vectors; for many, a one-bit scan and then exact scores."""

import numpy as np

EXACT = 20_000  # up to this many vectors, every cosine is computed
SHARE, LEAST = 200, 5_000  # candidates scored exactly: one in SHARE vectors, at least LEAST
CHUNK = 1 << 16  # vectors at a time


class Nearest:
    """An index of unit vectors, N D, possibly a memory map: of many, a query reads the candidates only.

    Many are first compared by the signs of their centred components, whose Hamming distance follows the angle
    (Charikar 2002): 48 bytes instead of 1,536 for 384 dimensions. The closest are then scored exactly.
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
        """The signs of N D numbers as 64-bit words, D/64 N: one word of all vectors is contiguous."""
        bits = np.packbits(np.asarray(vectors) > self.mean, axis=1)
        padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))
        return np.ascontiguousarray(padded.view(np.uint64).T)

    def search(self, query: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the closest vectors and their cosines, closest first, ties in row order."""
        rows = self.candidates(query, max(top, LEAST, len(self.vectors) // SHARE))
        scores = self.vectors @ query if rows is None else self.vectors[rows] @ query
        order = np.argsort(-scores, kind="stable")[:top]
        return (order if rows is None else rows[order]), scores[order]

    def candidates(self, query: np.ndarray, number: int) -> np.ndarray | None:
        """At least `number` rows, by Hamming distance; None: all rows."""
        if self.codes is None or number >= len(self.vectors):
            return None
        code, apart = self.encode(query[None]), np.zeros(len(self.vectors), np.uint16)
        for start in range(0, len(apart), CHUNK):  # fits a core's cache
            part = apart[start : start + CHUNK]
            for words, word in zip(self.codes[:, start : start + CHUNK], code, strict=True):
                part += np.bitwise_count(words ^ word)
        enough = np.cumsum(np.bincount(apart)) >= number
        return np.flatnonzero(apart <= enough.argmax())
