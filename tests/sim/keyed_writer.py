"""Simulated clients that change keys of one partition, each record under the condition that its key still has
the version that the client knows."""

from __future__ import annotations

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import (
    KeyVersion,
    PartitionProduceData,
    PartitionProduceResponse,
)
from tests.models.batches import encoded
from tests.sim.client import PASSING, Surroundings
from tests.sim.history import Batch, Incarnation, Outcome, TopicPartition
from tests.sim.keyed_history import NONE, KeyedHistory, KeyedWrite
from tests.sim.partition_client import PartitionClient

_PAUSE_S = 0.15
_HOT_KEYS = 3
"""Keys that get half of the records, so that writers contend for them."""
_COLD_KEYS = 40
"""Keys that get the other half: an index that is wrong about one stays wrong for seconds."""
_BLIND_SHARE = 0.15
"""The share of records that are written without a condition."""
_TOMBSTONE_SHARE = 0.3
_KEYLESS_SHARE = 0.05


class KeyedWriter(PartitionClient):
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
        super().__init__(around, name, at, _PAUSE_S)
        self._blind_share = blind_share
        self._has_tombstones = has_tombstones
        self._tombstones = self.process.rng("tombstones")
        self._told = told
        self._versions: dict[bytes, int] = {}
        self._made = 0

    def act(self, address: Address) -> None:
        if self._has_tombstones and self._tombstones.random() < _KEYLESS_SHARE:
            self._write_without_key(address)
        else:
            self._write(address)

    def _write(self, address: Address) -> None:
        topic, partition = self.at
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
            self.name, self.at, self._made, [value], -1, False, self.world.seconds(),
            sends=1, topic_id=topic_id, key=key,
        )  # fmt: skip
        self._made += 1
        self.history.batches.append(batch)
        write = KeyedWrite(self.name, Incarnation(self.at, topic_id), key, value, expected)
        data = PartitionProduceData(
            index=partition,
            records=encoded([(self.process.clock.date_ms(), key, None if is_tombstone else value)]),
            expected_topic_id=topic_id,
            expected_versions=[] if expected is None else [KeyVersion(record=0, version=expected)],
        )
        self._told.sent(write)
        self.produce(
            address, data, lambda row: self._answered(batch, write, row), lambda: self._unanswered(batch)
        )

    def _write_without_key(self, address: Address) -> None:
        data = PartitionProduceData(
            index=self.at[1], records=encoded([(self.process.clock.date_ms(), None, b"without a key")])
        )
        self.produce(address, data, self._refused)

    def _refused(self, row: PartitionProduceResponse) -> None:
        code = ErrorCode(row.error_code)
        if code in PASSING:
            self.refresh()
        elif code is not ErrorCode.INVALID_RECORD:
            self.history.violation(f"{self.name} got {code.name} for a record without a key")

    @staticmethod
    def _unanswered(batch: Batch) -> None:
        batch.outcome = Outcome.UNKNOWN

    def _answered(self, batch: Batch, write: KeyedWrite, row: PartitionProduceResponse) -> None:
        batch.outcome = Outcome.UNKNOWN
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
