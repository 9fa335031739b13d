"""What has to be copied from a leader before it hands its partition over."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition


@dataclass(frozen=True, slots=True)
class LastWrites:
    """The records that a leader had accepted before it began to hand its partition over."""

    partition: Partition
    end_offset: int

    def is_copied(self) -> bool:
        """Whether every in-sync follower has the records, or another broker already leads. Any in-sync
        follower may lead next."""
        role = self.partition.role
        if not isinstance(role, Leadership):
            return True
        in_sync = role.maximal_isr
        return all(
            remote.log_end_offset >= self.end_offset
            for remote in role.remotes.values()
            if remote.broker_id in in_sync
        )
