"""Keeping to a rate, and what came of it: for the programs that measure and verify."""

from __future__ import annotations

from dataclasses import dataclass, field

UNLIMITED = -1
_SAMPLES_MAX = 500_000


@dataclass(slots=True)
class Pace:
    """How many things may be done by now, at so many a second from `started_ms` on."""

    per_s: float
    started_ms: float

    def wait_ms(self, done: int, now_ms: float) -> float:
        """How long to wait before the next one, when `done` are done already; 0 where that is late."""
        if self.per_s <= 0:
            return 0.0
        return max(0.0, self.started_ms + done * 1000 / self.per_s - now_ms)


@dataclass(slots=True)
class Latencies:
    """Latencies in ms. Of very many an even sample is kept, for the percentiles."""

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
        """The latencies that these shares of all stay under; zeros where there are none."""
        ordered = sorted(self._samples)
        if not ordered:
            return [0.0] * len(shares)
        return [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in shares]
