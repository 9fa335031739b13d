"""Simulated clients that change keys of one partition, each record under the condition that its key still has
the version that the client knows."""

from __future__ import annotations

from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import (
    KeyVersion,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.models.batches import encoded
from tests.sim.client import PASSING, Client, Surroundings
from tests.sim.history import Batch, Incarnation, Outcome, TopicPartition
from tests.sim.keyed_history import NONE, KeyedHistory, KeyedWrite

_TIMEOUT_MS = 3000
_PAUSE_S = 0.15
_HOT_KEYS = 3
"""Keys that get half of the records, so that writers contend for them."""
_COLD_KEYS = 40
"""Keys that get the other half: an index that is wrong about one stays wrong for seconds."""
_BLIND_SHARE = 0.15
"""The share of records that are written without a condition."""
_TOMBSTONE_SHARE = 0.3
_KEYLESS_SHARE = 0.05


class KeyedWriter(Client):
    """Writes one record at a time while `is_making`. If it `has_tombstones`, some of the records delete their
    keys, and some have no key: a compacted topic must refuse them.

    It never repeats a request: if it gets no answer, it does not know whether the record is in the log, and
    learns that from the answer to its next condition.
    """

    def __init__(
        self,
        around: Surroundings,
        name: str,
        at: TopicPartition,
        told: KeyedHistory,
        blind_share: float = _BLIND_SHARE,
        *,
        has_tombstones: bool = False,
    ) -> None:
        super().__init__(around, name)
        self._blind_share = blind_share
        self._has_tombstones = has_tombstones
        self._tombstones = self.process.rng("tombstones")
        self.is_making = True
        self._at = at
        self._told = told
        self._versions: dict[bytes, int] = {}
        self._made = 0
        self._is_waiting = False

    @property
    def is_idle(self) -> bool:
        return not self.is_making and not self._is_waiting

    def begin(self) -> None:
        super().begin()
        self._tick()

    def _tick(self) -> None:
        leader = self.leader_of(self._at)
        if leader is None:
            self.refresh()
        elif self.is_making and not self._is_waiting:
            if self._has_tombstones and self._tombstones.random() < _KEYLESS_SHARE:
                self._write_without_key(leader[0])
            else:
                self._write(leader[0])
        self.later(_PAUSE_S * self.rng.uniform(0.2, 1.8), self._tick)

    def _write(self, address: Address) -> None:
        topic, partition = self._at
        topic_id = self.topics[topic].topic_id
        number = self.rng.randrange(_HOT_KEYS)
        if self.rng.random() < 0.5:
            number += self.rng.randrange(_COLD_KEYS)
        key = f"key {number}".encode()
        expected = None if self.rng.random() < self._blind_share else self._versions.get(key, NONE)
        value = f"{self.name}/{self._made}".encode()
        is_tombstone = self._has_tombstones and self._tombstones.random() < _TOMBSTONE_SHARE
        if is_tombstone:
            value = b""
        batch = Batch(
            self.name, self._at, self._made, [value], -1, False, self.world.seconds(),
            sends=1, topic_id=topic_id, key=key,
        )  # fmt: skip
        self._made += 1
        self.history.batches.append(batch)
        write = KeyedWrite(self.name, Incarnation(self._at, topic_id), key, value, expected)
        data = PartitionProduceData(
            index=partition,
            records=encoded([(self.process.clock.date_ms(), key, None if is_tombstone else value)]),
            expected_topic_id=topic_id,
            expected_versions=[] if expected is None else [KeyVersion(record=0, version=expected)],
        )
        request = ProduceRequest(
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        self._is_waiting = True
        self._told.sent(write)
        self.send(address, request).addCallbacks(
            lambda response: self._answered(batch, write, response), lambda failure: self._unanswered(batch)
        )

    def _write_without_key(self, address: Address) -> None:
        topic, partition = self._at
        data = PartitionProduceData(
            index=partition, records=encoded([(self.process.clock.date_ms(), None, b"without a key")])
        )
        request = ProduceRequest(
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        self._is_waiting = True
        self.send(address, request).addCallbacks(self._refused, self._not_refused)

    def _refused(self, response: ProduceResponse) -> None:
        self.history.operations += 1
        self._is_waiting = False
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if code in PASSING:
            self.refresh()
        elif code is not ErrorCode.INVALID_RECORD:
            self.history.violation(f"{self.name} got {code.name} for a record without a key")

    def _not_refused(self, failure: Failure) -> None:
        self._is_waiting = False
        self.refresh()

    def _unanswered(self, batch: Batch) -> None:
        self._is_waiting = False
        batch.outcome = Outcome.UNKNOWN
        self.refresh()

    def _answered(self, batch: Batch, write: KeyedWrite, response: ProduceResponse) -> None:
        self.history.operations += 1
        self._is_waiting = False
        batch.outcome = Outcome.UNKNOWN
        row: PartitionProduceResponse = response.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE:
            batch.outcome, batch.offset = Outcome.ACKED, row.base_offset
            self._versions[write.key] = row.base_offset
            self._told.written(write, row.base_offset)
        elif row.error_code == ErrorCode.KEY_VERSION_MISMATCH:
            self._versions[write.key] = row.key_versions[0].version
            self._told.refused(write, row.key_versions[0].version)
        else:
            if row.error_code not in PASSING:
                code = ErrorCode(row.error_code).name
                self.history.violation(f"{write} was refused with {code}: {row.error_message}")
            self.refresh()
