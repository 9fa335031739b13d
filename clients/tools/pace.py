"""Rate limiting and latency statistics for the programs that measure and verify."""

from __future__ import annotations

from dataclasses import dataclass, field

UNLIMITED = -1
_SAMPLES_MAX = 500_000


@dataclass(slots=True)
class Pace:
    """Spaces operations evenly at a rate per second, counted from `started_ms`."""

    per_s: float
    started_ms: float

    def wait_ms(self, done: int, now_ms: float) -> float:
        """Time in ms until the next operation is due, after `done` operations; 0 if it is overdue."""
        if self.per_s <= 0:
            return 0.0
        return max(0.0, self.started_ms + done * 1000 / self.per_s - now_ms)


@dataclass(slots=True)
class Latencies:
    """Collects latencies in ms. Keeps an evenly spaced sample of large numbers for the percentiles."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    _samples: list[float] = field(default_factory=list)
    _every: int = 1

    def add(self, latency_ms: float) -> None:
        if self.count % self._every == 0:
            self._samples.append(latency_ms)
            if len(self._samples) >= _SAMPLES_MAX:
                del self._samples[1::2]
                self._every *= 2
        self.count += 1
        self.total_ms += latency_ms
        self.max_ms = max(self.max_ms, latency_ms)

    @property
    def mean_ms(self) -> float:
        return self.total_ms / self.count if self.count else 0.0

    def percentiles(self, *shares: float) -> list[float]:
        """The latencies in ms at these shares (0.99 for the 99th percentile); zeros without any latency."""
        ordered = sorted(self._samples)
        if not ordered:
            return [0.0] * len(shares)
        return [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in shares]
