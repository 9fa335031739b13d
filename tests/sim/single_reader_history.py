"""What single readers got, and their judge: one that another has followed gets no records any more."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sim.owner_history import OwnerHistory, Told


@dataclass(slots=True)
class SingleReaderHistory:
    """What was read by `grants` of the right to read. Answers may be long on their way; but what was asked,
    or written, after the next reader had been told that it is the one, nobody else may get."""

    told: OwnerHistory
    _made_s: dict[bytes, float] = field(default_factory=dict)
    _batches_known: int = 0

    def got(self, grant: Told, asked_s: float, offset: int, values: list[bytes], *, is_current: bool) -> None:
        """A reader got these values from `offset` on, having asked for them at `asked_s`. `is_current`: of
        the leader. One that was replaced and does not know may go on giving what it had."""
        next_s = min(
            (
                other.told_s
                for other in self.told.grants
                if other.excludes(grant) and other.incarnation > grant.incarnation
            ),
            default=None,
        )
        if next_s is None:
            return
        history = self.told.history
        if is_current and asked_s > next_s:
            history.violation(f"{grant} was given {offset} though another reads since {next_s:.4f} s")
        elif any(self._made(value) > next_s for value in values):
            history.violation(f"{grant} was given {offset}, made after another reads, {next_s:.4f} s")

    def _made(self, value: bytes) -> float:
        """When a value was made, in seconds of the simulation."""
        batches = self.told.history.batches
        while self._batches_known < len(batches):
            batch = batches[self._batches_known]
            self._made_s.update(dict.fromkeys(batch.values, batch.made_s))
            self._batches_known += 1
        return self._made_s.get(value, 0.0)
