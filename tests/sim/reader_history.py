"""The members that got records of partitions in groups with single readers, and their judge."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sim.history import History, TopicPartition


@dataclass(slots=True)
class ReaderHistory:
    """Fetches that were answered with no error.

    Once the leader of an epoch has answered a member of one generation, neither it nor a later one answers
    what a member of an earlier generation sends after that. A leader that was replaced and has not heard
    of it may: it is of an earlier epoch.
    """

    history: History
    fetches: int = 0
    refused: int = 0
    _first: dict[tuple[str, TopicPartition], dict[tuple[int, int], float]] = field(default_factory=dict)
    """By generation and leader epoch: when the first of its answers was there."""

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
        """A fetch was answered that a member had sent as one of `generation`, to the leader of that epoch."""
        self.fetches += 1
        first = self._first.setdefault((group, at), {})
        for (later, epoch), since_s in first.items():
            if later > generation and epoch <= leader_epoch and since_s < sent_s:
                self.history.violation(
                    f"{member} read {at[0]}-{at[1]} for {group} in generation {generation}, leader epoch "
                    f"{leader_epoch}, after another had in generation {later}, leader epoch {epoch}"
                )
        first.setdefault((generation, leader_epoch), answered_s)
