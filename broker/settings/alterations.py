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


def check_segment_bytes(
    configs: Mapping[str, str | None], own: Mapping[str, str], name: str, minimum: int
) -> None:
    """Raises `SettingError` if a client sets the size of segments (the setting `name`) below `minimum`. The
    value that `own` has may stay."""
    value = configs.get(name)
    if value is None or value == own.get(name):
        return
    if value.strip().lstrip("+").isdecimal() and int(value) < minimum:
        raise SettingError(
            f"Invalid value {value} for configuration {name}: expected at least {minimum}, which is "
            "log.segment.bytes.min of this broker"
        )


INTERNAL_MESSAGE_BYTES_MIN = 1 << 20
"""Minimum of max.message.bytes of an internal topic: a group's record must fit in one batch."""


def check_internal_topic(topic: str, configs: Mapping[str, str | None]) -> None:
    """Raises `SettingError` for settings with which the brokers would lose what they keep in an internal
    topic, or could not write to it."""
    policy = [item.strip() for item in (configs.get("cleanup.policy") or "").split(",")]
    if policy != ["compact"]:
        raise SettingError(
            f"the internal topic {topic} must have cleanup.policy=compact: with another, brokers lose the "
            "offsets of all groups"
        )
    bytes_max = (configs.get("max.message.bytes") or "").strip().lstrip("+")
    if bytes_max.isdecimal() and int(bytes_max) < INTERNAL_MESSAGE_BYTES_MIN:
        raise SettingError(
            f"max.message.bytes of the internal topic {topic} must be at least {INTERNAL_MESSAGE_BYTES_MIN}: "
            "with less, brokers cannot store what groups commit"
        )


def _edited_list(current: str, change: str, operation: ConfigOperation) -> str:
    items = [item for item in current.split(",") if item]
    changed = [item.strip() for item in change.split(",") if item.strip()]
    if operation is ConfigOperation.APPEND:
        items += [item for item in changed if item not in items]
    else:
        items = [item for item in items if item not in changed]
    return ",".join(items)
