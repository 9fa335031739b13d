"""Payments that are written once each, although the process crashes and others write too (append ids).

    scripts/topics.sh --bootstrap-server localhost:9092 --create --topic payments
    python docs/examples/payments.py localhost:9092 payments notes.sqlite

Each line of the input, such as `4711 100 to Anna`, is a payment: its number, and what to pay. After a crash,
start the program again with the same notes: it sends every payment that has no offset yet. The process that
crashed may have written it already. The broker recognises it by its append id, which follows from the number.

A broker forgets old ids. So the note of a payment also says where the log ended before the payment was first
sent: it cannot be before that offset (`unused_before`). A broker that does not remember all ids from there on
does not guess. It refuses with AppendIdUnknownError, and the program reads that part of the log itself.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import uuid

from holdfast_log import (
    AppendIdUnknownError,
    Consumer,
    Message,
    OffsetMismatchError,
    Producer,
    TopicPartition,
)

WAIT_MS = 1000
ID_HEADER = "holdfast.append.id"
SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (
    number TEXT PRIMARY KEY, payment TEXT NOT NULL, unused_before INTEGER NOT NULL, offset INTEGER)
"""


class RecordsGoneError(Exception):
    """Whether a payment was written cannot be known: records that may have it have been deleted."""


class Payments:
    """Writes payments to partition 0 of a topic, and keeps notes of them in a database."""

    def __init__(self, address: str, topic: str, notes: sqlite3.Connection) -> None:
        self._place = TopicPartition(topic, 0)
        self._notes = notes
        self._producer = Producer({"bootstrap.servers": address})
        self._consumer = Consumer({"bootstrap.servers": address})

    def note(self, number: str, payment: str) -> None:
        """Note a payment before it is sent for the first time; no effect if it is noted already."""
        end = self._consumer.end_offsets([self._place])[self._place]
        self._notes.execute("INSERT OR IGNORE INTO notes VALUES (?, ?, ?, NULL)", (number, payment, end))

    def settle(self) -> None:
        """Write all payments that are noted and have no offset."""
        waiting = self._notes.execute("SELECT number, payment, unused_before FROM notes WHERE offset IS NULL")
        for number, payment, unused_before in waiting.fetchall():
            offset = self._write(number, payment, unused_before)
            self._notes.execute("UPDATE notes SET offset = ? WHERE number = ?", (offset, number))
            print(f"payment {number} is at offset {offset}", flush=True)

    def _write(self, number: str, payment: str, unused_before: int) -> int:
        """Write a payment, unless the log has it. Returns its offset."""
        append_id = uuid.uuid5(uuid.NAMESPACE_OID, f"payment {number}")
        message = Message(self._place.topic, key=number, value=payment, partition=self._place.partition)
        expected = unused_before
        while True:
            try:
                written = self._producer.send_at(
                    expected, message, append_id=append_id, unused_before=unused_before
                ).result()
                return written.offset
            except OffsetMismatchError as mismatch:
                # Others have written. The broker knows that none of it is this payment.
                expected = mismatch.next_offset
            except AppendIdUnknownError as unknown:
                found = self._find(append_id, unused_before, unknown.append_ids_from)
                if found is not None:
                    return found
                unused_before, expected = unknown.append_ids_from, unknown.next_offset

    def _find(self, append_id: uuid.UUID, start: int, end: int) -> int | None:
        """The offset of the payment with this append id between two offsets; None if it is not there."""
        if self._consumer.beginning_offsets([self._place])[self._place] > start:
            raise RecordsGoneError(f"records from offset {start} on, where the payment may be, were deleted")
        self._consumer.add_topic(*self._place)
        self._consumer.seek(self._place, start)
        try:
            while self._consumer.position(self._place) < end:
                for record in self._consumer.poll(WAIT_MS):
                    if record.offset < end and dict(record.headers).get(ID_HEADER) == append_id.bytes:
                        return record.offset
            return None
        finally:
            self._consumer.remove_topic(*self._place)


def main(bootstrap: str, topic: str, path: str) -> None:
    """Write the payments of an earlier process, and then those of the input."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as notes:
        notes.execute(SCHEMA)
        payments = Payments(bootstrap, topic, notes)
        payments.settle()
        for line in sys.stdin:
            payments.note(*line.strip().split(" ", 1))
            payments.settle()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
