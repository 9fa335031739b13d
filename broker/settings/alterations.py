"""Alterations of settings by IncrementalAlterConfigs (KIP-339). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast_log.clients.settings import InvalidValue, Setting, SettingError, SettingType
from holdfast_log.protocol.configs import ConfigOperation
from holdfast_log.protocol.errors import BrokerError, ErrorCode


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change of a setting."""

    name: str
    operation: ConfigOperation
    value: str | None


@contextmanager
def worded_as_in_kafka() -> Iterator[None]:
    """Raise `InvalidValue` with the words with which Kafka's brokers begin: programs look for them."""
    try:
        yield
    except InvalidValue as error:
        raise SettingError(
            f"Invalid value {error.shown.strip(chr(39))} for configuration {error.name}: "
            f"expected {error.allowed}"
        ) from None


def altered(
    own: Mapping[str, str],
    alterations: Sequence[Alteration],
    rows: Mapping[str, Setting],
    inherited: Callable[[str], str | None],
) -> dict[str, str]:
    """Apply alterations to `own`, the settings of a topic or broker. Does not check the new values.

    `rows` are the settings by name. `inherited` returns the value in force of a setting that `own` lacks, to
    which items of a list are added. Raises `SettingError`, and BrokerError INVALID_REQUEST for a setting that
    is named twice.
    """
    names = [alteration.name for alteration in alterations]
    if len(set(names)) != len(names):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the request names a setting more than once")
    result = dict(own)
    for alteration in alterations:
        name, value = alteration.name, alteration.value
        if alteration.operation is ConfigOperation.DELETE:
            result.pop(name, None)
            continue
        if value is None:
            raise SettingError(f"{name} has no value")
        if alteration.operation is not ConfigOperation.SET:
            row = rows.get(name)
            if row is None or row.type is not SettingType.LIST:
                raise SettingError(f"{name} is not a list: it can only be set or deleted")
            value = _edited_list(result.get(name) or inherited(name) or "", value, alteration.operation)
        result[name] = value
    return result


SEGMENT_INDEX_BYTES_MIN = 1000
"""Minimum of segment.index.bytes that a client may set: a full index starts the next segment."""
INDEX_INTERVAL_BYTES_MIN = 1 << 10
"""Minimum of index.interval.bytes that a client may set: with an entry for each batch, the indexes of one
segment take hundreds of megabytes of the memory of what checks or compacts it."""
INDEX_INTERVAL_BYTES_MAX = 1 << 20
"""Maximum of index.interval.bytes that a client may set: a search for an offset or a time reads the
headers of all batches between two entries of an index, and the broker serves nobody meanwhile."""


@dataclass(frozen=True, slots=True)
class ClientBound:
    """The smallest and the largest value that a client may give a setting; None for no such bound. `why`
    says where the bound comes from."""

    smallest: int | None
    largest: int | None
    why: str

    def refusal(self, value: int) -> str | None:
        """What a value has to be instead, and why; None if it may be set."""
        if self.smallest is not None and value < self.smallest:
            return f"at least {self.smallest}, {self.why}"
        if self.largest is not None and value > self.largest:
            return f"at most {self.largest}, {self.why}"
        return None


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """How small a client may make the segments of a log, and how dense or sparse their indexes. Each segment
    costs several files, and a snapshot of the producers: very small ones make each append cost as much as a
    segment."""

    bytes_min: int
    ms_min: int

    def of_topic(self) -> dict[str, ClientBound]:
        """The bound of each setting of a topic."""
        ms_min = ClientBound(self.ms_min, None, "which is log.segment.ms.min of this broker")
        return {
            "segment.bytes": ClientBound(
                self.bytes_min, None, "which is log.segment.bytes.min of this broker"
            ),
            "segment.ms": ms_min,
            "max.compaction.lag.ms": ms_min,
            "segment.index.bytes": ClientBound(
                SEGMENT_INDEX_BYTES_MIN, None, "because a full index starts the next segment"
            ),
            "index.interval.bytes": ClientBound(
                INDEX_INTERVAL_BYTES_MIN,
                INDEX_INTERVAL_BYTES_MAX,
                "because each entry of an index takes memory, and reading from an offset begins with so many "
                "bytes of log",
            ),
        }

    def of_broker(self) -> dict[str, ClientBound]:
        """The same for the settings of brokers that are the defaults of these."""
        names = {
            "segment.bytes": "log.segment.bytes",
            "segment.ms": "log.roll.ms",
            "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
            "segment.index.bytes": "log.index.size.max.bytes",
            "index.interval.bytes": "log.index.interval.bytes",
        }
        return {names[name]: bound for name, bound in self.of_topic().items()}


def check_segments(
    configs: Mapping[str, str | None], own: Mapping[str, str], bounds: Mapping[str, ClientBound]
) -> None:
    """Raises `SettingError` if a client sets one of these settings beyond its bound, so that a log would
    have very many segments, very large indexes, or very long ways from one index entry to the next. A value
    that `own` has may stay."""
    for name, bound in bounds.items():
        value = configs.get(name)
        if value is None or value == own.get(name) or not value.strip().lstrip("+").isdecimal():
            continue
        refusal = bound.refusal(int(value))
        if refusal is not None:
            raise SettingError(f"Invalid value {value} for configuration {name}: expected {refusal}")


def _edited_list(current: str, change: str, operation: ConfigOperation) -> str:
    items = [item for item in current.split(",") if item]
    changed = [item.strip() for item in change.split(",") if item.strip()]
    if operation is ConfigOperation.APPEND:
        items += [item for item in changed if item not in items]
    else:
        items = [item for item in items if item not in changed]
    return ",".join(items)
