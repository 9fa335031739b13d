"""The records that single readers got, and their judge: a replaced reader must get no more records."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sim.owner_history import OwnerHistory, Told


@dataclass(slots=True)
class SingleReaderHistory:
    """What brokers answered to fetches under grants to read. An answer may arrive late. But once the next
    reader has its grant, no other may get an answer to a new fetch, or records that were written after that.
    """

    told: OwnerHistory
    _made_s: dict[bytes, float] = field(default_factory=dict)
    _batches_known: int = 0

    def answered(self, grant: Told, asked_s: float) -> None:
        """Check a fetch without an error, with records or without, that a reader requested at `asked_s`."""
        next_s = self._next_s(grant)
        if next_s is not None and asked_s > next_s:
            self.told.history.violation(f"{grant} got an answer although another reads since {next_s:.4f} s")

    def got(self, grant: Told, offset: int, values: list[bytes]) -> None:
        """Check values that a reader got from `offset` on."""
        next_s = self._next_s(grant)
        if next_s is not None and any(self._made(value) > next_s for value in values):
            self.told.history.violation(
                f"{grant} got {offset}, made after another began to read at {next_s:.4f} s"
            )

    def _next_s(self, grant: Told) -> float | None:
        """When the next reader was told of its grant, in simulated seconds; None if there is none."""
        return min(
            (
                other.told_s
                for other in self.told.grants
                if other.excludes(grant) and other.incarnation > grant.incarnation
            ),
            default=None,
        )

    def _made(self, value: bytes) -> float:
        """When a producer made the value, in simulated seconds."""
        batches = self.told.history.batches
        while self._batches_known < len(batches):
            batch = batches[self._batches_known]
            self._made_s.update(dict.fromkeys(batch.values, batch.made_s))
            self._batches_known += 1
        return self._made_s.get(value, 0.0)
