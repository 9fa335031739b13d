"""What a bank needs of a client library: tills, which make transactions, and readers of committed records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tests.bank.books import BankPlan
from tests.bank.ledger import Ending

WAIT_S = 300.0
"""How long anything may take on a busy machine under faults; everything else waits for events."""
CALL_S = 15.0
"""How long one call of a client waits, before it is made again."""
READ_S = 0.2
TRANSACTION_TIMEOUT_MS = 60_000


class BankError(Exception):
    """Somebody at the bank got an error that clients should not get, or waited for too long."""


class TillError(Exception):
    """A till cannot go on, and nobody has asked it to commit what is open: it will not take place."""


class Ended(NamedTuple):
    """How a transfer ended, and whether the till can make another one."""

    ending: Ending
    goes_on: bool


class Till(Protocol):
    """A transactional producer. `ends` has for each partition the offset behind the last record of this till
    that was acknowledged."""

    ends: dict[int, int]

    def begin(self) -> None:
        """Raises `TillError`."""
        ...

    def send(self, partition: int, value: bytes) -> None:
        """Raises `TillError`."""
        ...

    def flush(self, seconds: float) -> None:
        """Have what was sent written, if that takes no longer. Raises `TillError`, or nothing."""
        ...

    def commit(self) -> Ended: ...

    def abort(self) -> bool:
        """Whether the till can go on."""
        ...

    def close(self) -> None: ...


class Reader(Protocol):
    """A consumer of all partitions, from their beginning."""

    def read(self) -> Sequence[tuple[int, int, bytes]]:
        """Partition, offset and value of each record that has come; waits for `READ_S` at most."""
        ...

    def upcoming(self) -> Sequence[int]:
        """For each partition the offset before which `read` has returned everything that it ever will."""
        ...

    def close(self) -> None: ...


class Patience:
    """For how long calls are repeated: `WAIT_S` from now on, or until somebody gives up."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._until_s = time.monotonic() + WAIT_S
        self._is_over = is_over

    @property
    def is_over(self) -> bool:
        return self._is_over() or time.monotonic() > self._until_s


@dataclass(frozen=True, slots=True)
class Library:
    """A client library. `open_till` returns once the coordinator has fenced the earlier tills of that name,
    and aborted what they had open; it raises `BankError` if that takes too long. `open_reader` reads
    committed records, or all."""

    open_till: Callable[[str, str, str, Callable[[], bool]], Till]
    """With the brokers' addresses, the topic, the transactional id, and whether it is all over."""
    open_reader: Callable[[str, BankPlan], Reader]


Libraries = Mapping[str, Library]
