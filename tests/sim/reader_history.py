"""The fetches answered to members of groups with single readers, and their judge."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sim.history import History, TopicPartition


@dataclass(slots=True)
class ReaderHistory:
    """Fetches answered without an error.

    Once a leader has answered a member of one generation, no broker may answer a fetch that a member of an
    earlier generation sends afterwards: also no leader that was replaced and does not know it.
    """

    history: History
    fetches: int = 0
    refused: int = 0
    _first: dict[tuple[str, TopicPartition], dict[tuple[int, int], float]] = field(default_factory=dict)
    """Time of the first answer, by generation and leader epoch."""

    def answered(
        self,
        member: str,
        group: str,
        at: TopicPartition,
        generation: int,
        leader_epoch: int,
        sent_s: float,
        answered_s: float,
    ) -> None:
        """Check an answered fetch that a member of `generation` sent to the leader of `leader_epoch`."""
        self.fetches += 1
        first = self._first.setdefault((group, at), {})
        for (later, epoch), since_s in first.items():
            if later > generation and since_s < sent_s:
                self.history.violation(
                    f"{member} read {at[0]}-{at[1]} for {group} in generation {generation}, leader epoch "
                    f"{leader_epoch}, after another member in generation {later}, leader epoch {epoch}"
                )
        first.setdefault((generation, leader_epoch), answered_s)
