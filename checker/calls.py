"""What the clients of a check record: one value for each call, with the times of question and answer.

All times are seconds of one clock that cannot be set (`clients.boot_clock`), so all clients of a history must
run on one machine. A history is kept as JSON, one call in each line.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

NO_GRANT = -1
ABSENT = -1
"""The version of a key that has no value yet."""
NO_OFFSET = -1
NO_CONNECTION = 0
ANY_BROKER = -1
NO_LINE = ""
NO_APPEND_ID = ""


class Outcome(enum.StrEnum):
    """How a call ended."""

    DONE = "done"
    """The broker answered that it has carried the call out."""
    REFUSED = "refused"
    """The broker answered that it has not carried the call out, and never will."""
    UNKNOWN = "unknown"
    """There was no such answer: the call may have been carried out, or may still be."""


class Action(enum.StrEnum):
    """What a client asked about a resource that has one owner at a time."""

    CLAIM = "claim"
    RENEW = "renew"
    RESUME = "resume"
    READ = "read"
    """A read that only the owner may make."""
    WRITE = "write"
    """A write that only the owner may make, or a write under a guard."""
    RELEASE = "release"
    INTRUDE = "intrude"
    """A read or write that only the owner may make, by a client that is not the owner."""


@dataclass(frozen=True, slots=True)
class OwnershipCall:
    """A call about a resource.

    `grant` is a number that rises with every grant of the resource: an incarnation (own API), a topic epoch
    (PIP-68), or the guarded offset (KIP-27). DONE confirms the client as the owner by that grant;
    after a release, as its former owner. REFUSED with a grant says that the client has lost it.
    `session_s` is the time for which a confirmation keeps others out, from when it was asked; 0 if the client
    has no such promise. A claim that `is_taking` may take the resource from its owner; one that `is_stale`
    names a generation although the client was answered before that a later one is in force. `connection`
    numbers the client's connections on which it was confirmed; NO_CONNECTION if the client cannot tell.
    `broker` is the id of the broker that answered, ANY_BROKER if it does not matter.
    """

    client: str
    resource: str
    action: Action
    asked_s: float
    answered_s: float
    outcome: Outcome
    grant: int = NO_GRANT
    session_s: float = 0.0
    is_taking: bool = False
    fence_offset: int = NO_OFFSET
    is_stale: bool = False
    connection: int = NO_CONNECTION
    broker: int = ANY_BROKER

    @property
    def is_confirmation(self) -> bool:
        is_by_owner = self.action is not Action.RELEASE and self.action is not Action.INTRUDE
        return self.outcome is Outcome.DONE and is_by_owner

    def __str__(self) -> str:
        return (
            f"{self.action} of {self.resource} by {self.client}, grant {self.grant}, "
            f"asked at {self.asked_s:.3f} s and answered at {self.answered_s:.3f} s: {self.outcome}"
        )


@dataclass(frozen=True, slots=True)
class AppendCall:
    """An append of `values`, all or none, from `offset` on; each value is written once in the whole history.

    With an `expected_offset` it is conditional (KIP-27). `next_offset` is where the log ended, as a refusal
    says. `grant` is the topic epoch of an exclusive producer, or the incarnation of an owner.

    Calls with one `append_id` are attempts of one append, with the same values, by any client: at most one of
    them takes effect. So are the copies of one batch of an idempotent producer. Calls of one `line` were sent
    one after the other on one connection as one attempt, without waiting for answers, and have `in_line` as
    their places: once one is refused, all behind it are.
    """

    client: str
    topic: str
    partition: int
    values: tuple[str, ...]
    asked_s: float
    answered_s: float
    outcome: Outcome
    offset: int = NO_OFFSET
    expected_offset: int = NO_OFFSET
    next_offset: int = NO_OFFSET
    grant: int = NO_GRANT
    append_id: str = NO_APPEND_ID
    line: str = NO_LINE
    in_line: int = 0

    def __str__(self) -> str:
        what = (
            self.values[0] if len(self.values) == 1 else f"{self.values[0]} and {len(self.values) - 1} more"
        )
        return (
            f"append of {what} to {self.topic}-{self.partition} by {self.client}, "
            f"asked at {self.asked_s:.3f} s and answered at {self.answered_s:.3f} s: {self.outcome}"
        )


@dataclass(frozen=True, slots=True)
class ReadCall:
    """Records that a consumer returned, as pairs of offset and value, in the order of their return."""

    client: str
    topic: str
    partition: int
    asked_s: float
    answered_s: float
    records: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class KeyCall:
    """A call to the key-value register, whose versions are the offsets of its puts in one partition.

    A get returns the `version` that it saw. A put writes `value`, which occurs once in the history, if the
    key has `expected_version`; `version` is the one that it made, ABSENT if its outcome is unknown.
    """

    client: str
    topic: str
    partition: int
    key: str
    is_put: bool
    asked_s: float
    answered_s: float
    outcome: Outcome
    version: int = ABSENT
    expected_version: int = ABSENT
    value: str = ""

    def __str__(self) -> str:
        verb = "put" if self.is_put else "get"
        return (
            f"{verb} of {self.key} by {self.client}, version {self.version}, "
            f"asked at {self.asked_s:.3f} s and answered at {self.answered_s:.3f} s"
        )


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """The records of a partition at the end of the check, as pairs of offset and value in ascending order."""

    topic: str
    partition: int
    records: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class ListRead:
    """What a transaction read of a list: `count` elements, the `last` of them as they were read."""

    name: str
    count: int
    last: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransactionCall:
    """A transaction that read lists and then appended to lists, as pairs of list and element. Each element is
    appended once in the whole history. REFUSED: it was aborted, or nobody asked to commit it. A reader that
    appends nothing is a transaction of its own with each read."""

    client: str
    asked_s: float
    answered_s: float
    outcome: Outcome
    reads: tuple[ListRead, ...] = ()
    appends: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        what = f" of {self.appends[0][1]} and {len(self.appends) - 1} more" if self.appends else ""
        return (
            f"transaction{what} by {self.client}, asked at {self.asked_s:.3f} s and answered at "
            f"{self.answered_s:.3f} s: {self.outcome}"
        )


@dataclass(frozen=True, slots=True)
class StoredList:
    """The elements of a list at the end of the check, as readers of committed records get them."""

    name: str
    elements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletedLog:
    """A partition of a topic that was deleted: what it had is gone."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """A fault of one broker, and when it began and ended."""

    fault: str
    broker: int
    began_s: float
    ended_s: float


Recorded: TypeAlias = (
    OwnershipCall
    | AppendCall
    | ReadCall
    | KeyCall
    | TransactionCall
    | StoredRecords
    | StoredList
    | DeletedLog
    | FaultSpan
)

_KINDS: Mapping[str, type[Recorded]] = {
    "ownership": OwnershipCall,
    "append": AppendCall,
    "read": ReadCall,
    "key": KeyCall,
    "transaction": TransactionCall,
    "list": StoredList,
    "stored": StoredRecords,
    "deleted": DeletedLog,
    "fault": FaultSpan,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(slots=True)
class CallHistory:
    """All that a check has recorded, by kind."""

    ownership: list[OwnershipCall] = field(default_factory=list)
    appends: list[AppendCall] = field(default_factory=list)
    reads: list[ReadCall] = field(default_factory=list)
    keys: list[KeyCall] = field(default_factory=list)
    transactions: list[TransactionCall] = field(default_factory=list)
    lists: list[StoredList] = field(default_factory=list)
    stored: list[StoredRecords] = field(default_factory=list)
    deleted: list[DeletedLog] = field(default_factory=list)
    faults: list[FaultSpan] = field(default_factory=list)

    def add(self, recorded: Recorded) -> None:
        match recorded:
            case OwnershipCall():
                self.ownership.append(recorded)
            case AppendCall():
                self.appends.append(recorded)
            case ReadCall():
                self.reads.append(recorded)
            case KeyCall():
                self.keys.append(recorded)
            case TransactionCall():
                self.transactions.append(recorded)
            case StoredList():
                self.lists.append(recorded)
            case StoredRecords():
                self.stored.append(recorded)
            case DeletedLog():
                self.deleted.append(recorded)
            case FaultSpan():
                self.faults.append(recorded)


def to_line(recorded: Recorded) -> str:
    """One line of JSON, without the line's end."""
    return json.dumps({"kind": _NAMES[type(recorded)], **dataclasses.asdict(recorded)})


def from_lines(lines: Iterable[str]) -> CallHistory:
    """The history in these lines. Raises ValueError, with its number, for a line that is no call."""
    history = CallHistory()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            history.add(_from_fields(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} is no call of a history: {error!r}") from error
    return history


def _from_fields(fields: dict[str, Any]) -> Recorded:
    kind = _KINDS[fields.pop("kind")]
    if "action" in fields:
        fields["action"] = Action(fields["action"])
    if "outcome" in fields:
        fields["outcome"] = Outcome(fields["outcome"])
    if "values" in fields:
        fields["values"] = tuple(fields["values"])
    if "reads" in fields:
        fields["reads"] = tuple(
            ListRead(each["name"], each["count"], tuple(each["last"])) for each in fields["reads"]
        )
        fields["appends"] = tuple((name, element) for name, element in fields["appends"])
    if "elements" in fields:
        fields["elements"] = tuple(fields["elements"])
    if "records" in fields:
        fields["records"] = tuple((offset, value) for offset, value in fields["records"])
    return kind(**fields)
