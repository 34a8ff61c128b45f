"""The server's metrics, for Prometheus."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from regard.serve.api.engine import PATHS

FAST = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds
TOKEN = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
KNOWN = {*PATHS.values(), "/v1/models", "/health", "/metrics", "/docs", "/openapi.json"}


class ServerMetrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def histogram(name: str, about: str, buckets: tuple[float, ...], label: str = "model") -> Histogram:
            return Histogram(f"regard_{name}", about, [label], buckets=buckets, registry=registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"regard_{name}", about, ["model"], registry=registry)

        self.requests = Counter("regard_requests", "Requests answered.", ["endpoint", "status"], registry=registry)
        self.seconds = histogram("request_seconds", "From a request to the end of its answer.", FAST, "endpoint")
        self.tokens = Counter("regard_tokens", "Tokens read and written.", ["model", "what"], registry=registry)
        self.first = histogram("time_to_first_token_seconds", "From a request to its first token.", FAST)
        self.each = histogram("time_per_token_seconds", "From a token to the next one of the same text.", TOKEN)
        self.batch = histogram("batch_size", "Texts decoded, or inputs answered, together.", SIZES)
        self.running = gauge("running", "Texts that are being written.")
        self.waiting = gauge("waiting", "Texts that wait for a place in the batch.")
        self.cache = gauge("cache_used_ratio", "Share of the cache that holds keys and values of texts.")
        self.starts = Counter("regard_engine_starts", "How often the engine's process was started.", registry=registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        endpoint = path if path in KNOWN else "/v1/predict" if path.startswith("/v1/predict/") else "other"
        self.requests.labels(endpoint, str(status)).inc()
        self.seconds.labels(endpoint).observe(seconds)

    def written(self, model: str, report: dict[str, Any]) -> None:
        """Count the tokens and times of a request's last report."""
        self.tokens.labels(model, "prompt").inc(report["prompt_tokens"])
        self.tokens.labels(model, "completion").inc(report["completion_tokens"])
        self.first.labels(model).observe(report["first"])
        if report["between"] is not None:
            self.each.labels(model).observe(report["between"])

    def load(self, model: str, stats: dict[str, Any]) -> None:
        """Record a lane's report of its load."""
        for size in stats["batches"]:
            self.batch.labels(model).observe(size)
        for name in ("running", "waiting", "cache"):
            if name in stats:
                getattr(self, name).labels(model).set(stats[name])

    def text(self) -> bytes:
        return generate_latest(self.registry)
