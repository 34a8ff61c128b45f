"""Seconds of `regard similar` over many saved vectors, and its recall: python bench/similar.py [--vectors 1000000]

Vectors and queries are sampled in clusters, with variances that fall off like those of sentence encoders, and rotated
at random. Exact search by NumPy's matrix product is the reference.
"""

import argparse
import time

import numpy as np

from regard.predictors.nearest import Nearest


def draw(number: int, queries: int, width: int, clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors and queries of length 1."""
    rng = np.random.default_rng(seed)
    spread = (np.arange(1, width + 1) ** -0.4).astype(np.float32)
    turn = np.linalg.qr(rng.standard_normal((width, width)))[0].astype(np.float32)
    centres = rng.standard_normal((clusters, width), np.float32)
    vectors = np.empty((number + queries, width), np.float32)
    for start in range(0, len(vectors), 50_000):
        part = vectors[start : start + 50_000]
        noise = rng.standard_normal(part.shape, np.float32)
        drawn = (centres[rng.integers(clusters, size=len(part))] + 0.8 * noise) * spread @ turn + 0.02
        part[:] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return vectors[:number], vectors[number:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--clusters", type=int, default=2_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    vectors, queries = draw(args.vectors, args.queries, args.width, args.clusters, args.seed)
    start = time.perf_counter()
    nearest = Nearest(vectors)
    loading = time.perf_counter() - start
    exact = np.stack([np.argpartition(-(vectors @ query), 10)[:10] for query in queries])
    seconds, shared = [], 0
    for query, expected in zip(queries, exact, strict=True):
        start = time.perf_counter()
        rows, _ = nearest.search(query, 10)
        seconds.append(time.perf_counter() - start)
        shared += len(set(rows.tolist()) & set(expected.tolist()))
    start = time.perf_counter()
    vectors @ queries[0]
    plain = time.perf_counter() - start
    print(
        f"{args.vectors:,} vectors of {args.width}: {loading:.1f} s to load, {1e3 * np.median(seconds):.1f} ms a query"
    )
    print(f"(worst {1e3 * max(seconds):.1f} ms; the plain product alone {1e3 * plain:.0f} ms)")
    print(f"recall@10 {shared / exact.size:.4f} of exact search, {len(queries)} queries")


if __name__ == "__main__":
    main()
