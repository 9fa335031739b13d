"""A leader's right to acknowledge writes with acks=all, and to answer reads of what was committed.

A broker that holds its lease is registered, so no other broker has been elected in its place: it acknowledges
what is committed. Without its lease, its followers prove what ZooKeeper cannot tell it any more:

- A write is acknowledged once every other replica that is in sync, or may be, has fetched it from this leader
  in its leader epoch. The next leader is one of them, and it fetches nothing in that epoch once it leads: so
  it had the write when it began (`AcknowledgedStays` in docs/spec/Log.tla).
- A leader that is alone in sync, or may be, has nobody who proves anything. An unclean election, or a topic
  that is deleted and created again, may have put another in its place. It acknowledges nothing. A follower
  that it has proposed does not count yet: an unclean election may pass over it.
- A read is answered once each of these replicas has asked for a fetch after the read had come: none of them
  led when it asked.

A leader whose followers do not fetch any more refuses new writes, because they have probably moved on to
another leader: clients then look for that one.
"""

from __future__ import annotations

from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.fetch_sessions import FetchSessions
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.broker.replication.session_partitions import NEVER_MS
from holdfast_log.protocol.errors import BrokerError, ErrorCode

FETCH_DELAY_MS = 1500
"""Time in ms by which a follower's next fetch may be late before writes are refused."""


class RightToAcknowledge:
    """Knows what this broker may acknowledge. Followers fetch again after `fetch_wait_ms_max` at the
    latest."""

    def __init__(self, right: RightToConfirm, sessions: FetchSessions, fetch_wait_ms_max: int) -> None:
        self._right = right
        self._sessions = sessions
        self._silence_ms_max = fetch_wait_ms_max + FETCH_DELAY_MS

    @property
    def needs_followers(self) -> bool:
        """Whether this broker must ask its followers: it may be registered no more."""
        return not self._right.is_registered()

    def refusal(self, partition: Partition, now_ms: int) -> BrokerError | None:
        """The error of a write that has come now; None if it may be committed."""
        role = partition.role
        if self._right.is_registered() or not isinstance(role, Leadership):
            return None
        if role.is_alone:
            return _refused(partition, "it is the only replica in sync")
        if now_ms - self._heard_ms(partition, role) > self._silence_ms_max:
            return _refused(partition, "not all replicas in sync fetch from it any more")
        return None

    def acknowledges(self, partition: Partition) -> bool:
        """Whether what the high watermark has passed may be acknowledged."""
        if self._right.is_registered():
            return True
        role = partition.role
        return isinstance(role, Leadership) and not role.is_alone

    def is_settled(self, append: Append, acks: int, now_ms: int) -> bool:
        """Whether an append with acks=all may be answered; sets its error if it will not be acknowledged."""
        is_settled = append.is_settled(acks)
        partition = append.partition
        # A condition is confirmed when it is answered (`Conditions.confirm`).
        if append.error is not None or append.settles_at is not None or partition is None:
            return is_settled
        if is_settled and self.acknowledges(partition):
            return True
        error = self.refusal(partition, now_ms)
        if error is not None:
            append.fail(error)
        return error is not None

    def led_at_ms(self, partition: Partition, now_ms: int) -> int:
        """The latest time in ms of which it is proven that no other broker led the partition; a large
        negative number if none is."""
        if self._right.is_registered():
            return now_ms
        role = partition.role
        if not isinstance(role, Leadership) or role.is_alone:
            return NEVER_MS
        asked_ms = self._sessions.asked_after_ms(partition.key, partition.leader_epoch)
        return min(
            asked_ms.get(candidate, NEVER_MS)
            for candidate in role.maximal_isr.union(role.eligible)
            if candidate != role.local_id
        )

    def _heard_ms(self, partition: Partition, role: Leadership) -> int:
        """The time in ms since which all other replicas in sync have fetched, also outside their sessions."""
        used_ms = self._sessions.used_ms(partition.key)
        return min(
            max(remote.fetched_ms, used_ms.get(remote.broker_id, NEVER_MS))
            for remote in role.remotes.values()
            if remote.broker_id in role.maximal_isr
        )


def _refused(partition: Partition, why: str) -> BrokerError:
    return BrokerError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"another broker may lead {partition.topic}-{partition.index}, because this one has not heard of "
        f"ZooKeeper for too long, and {why}: look for the leader",
    )
