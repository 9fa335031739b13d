"""Numbers, sizes, times and reasons in words for pages; and names of strangers made harmless to look at."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

from markupsafe import Markup, escape

from holdfast_log.clients.admin import (
    AclBinding,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    OwnershipDescription,
    ResourcePattern,
)
from holdfast_log.protocol.acl_bindings import EVERY_HOST, EVERYBODY, acl_name
from holdfast_log.protocol.acls import ANY_NAME
from holdfast_log.protocol.messages.ownership import LossReason
from holdfast_log.protocol.messages.ownership_sight import OwnershipState
from holdfast_log.protocol.topic_partition import TopicPartition

UNKNOWN = "\u2013"

REASONS = {
    LossReason.NONE: "The broker does not say why",
    LossReason.STOLEN: "Another owner claimed it with a generation at least as high",
    LossReason.RESET: "Another owner claimed it anew, with generation 0",
    LossReason.EVICTED: "A producer took it over, and fenced the owner off",
    LossReason.RELEASED: "The owner released it",
    LossReason.DISCONNECTED: "The owner's connection closed, and it did not come back in time",
    LossReason.SESSION_TIMED_OUT: "The owner sent nothing for its session timeout",
    LossReason.FORCED: "An administrator took it away",
    LossReason.DELETED: "The topic was deleted",
    LossReason.FOREIGN_APPEND: "The owner was gone, and another client has written since",
    LossReason.FOREIGN_FETCH: "The owner was gone, and another connection of its group has read since",
}

STATES = {
    OwnershipState.FREE: "Free",
    OwnershipState.OWNED: "Owned",
    OwnershipState.DETACHED: "Owner is away",
}

PROTOCOLS = {"classic": "classic", "consumer": "KIP-848", "managed": "managed"}
"""The protocols of groups in words."""

KINDS = {
    AclResource.TOPIC: "topic",
    AclResource.GROUP: "group",
    AclResource.CLUSTER: "cluster",
    AclResource.TRANSACTIONAL_ID: "transactional id",
    AclResource.DELEGATION_TOKEN: "delegation token",
    AclResource.USER: "user",
}


def number(value: float | None) -> str:
    """A whole number with separators."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A number per second: with one digit after the point while it is small."""
    if value is None:
        return UNKNOWN
    if 0 < value < 0.05:
        return "< 0.1"
    return "0" if value == 0 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def size(value: int | None) -> str:
    """Bytes in a unit that fits."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} PiB"


def count(value: int, one: str, more: str | None = None) -> str:
    """A number and its noun: 1 broker, 2 brokers."""
    return f"{value:,} {one if value == 1 else more or one + 's'}"


def moment(at_ms: int | None) -> str:
    """A time in ms since the epoch, in UTC."""
    found = _utc(at_ms)
    return UNKNOWN if found is None else found.strftime("%Y-%m-%d %H:%M:%S UTC")


def precise(at_ms: int | None) -> str:
    """A time in ms since the epoch, in UTC, to the millisecond."""
    found = _utc(at_ms)
    return (
        UNKNOWN if found is None else found.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "")
    )


def iso(at_ms: int | None) -> str:
    """A time in ms since the epoch for the attribute datetime; empty if there is none."""
    found = _utc(at_ms)
    return "" if found is None else found.isoformat(timespec="milliseconds")


def _utc(at_ms: int | None) -> datetime | None:
    try:
        return None if at_ms is None or at_ms < 0 else datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def span(seconds: float) -> str:
    """A length of time in its largest unit or two."""
    left = max(0, int(seconds))
    days, left = divmod(left, 86_400)
    hours, left = divmod(left, 3_600)
    minutes, left = divmod(left, 60)
    if days:
        return f"{count(days, 'day')} {hours} h" if hours else count(days, "day")
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min" if minutes else f"{left} s"


def resource_name(resource: TopicPartition | str) -> str:
    """A partition as topic-number, or the name of a resource."""
    return resource if isinstance(resource, str) else f"{resource.topic}-{resource.partition}"


def group_name(group: str) -> str:
    """A group in words; the empty one is that of exclusive producers."""
    return group or "writers"


def group_protocol(group_type: str) -> str:
    """The protocol of a group, by the type that brokers list it with."""
    return PROTOCOLS.get(group_type.lower(), group_type) or UNKNOWN


def ids(brokers: tuple[int, ...]) -> str:
    """Ids in their order."""
    return ", ".join(map(str, brokers))


def pattern_name(pattern: ResourcePattern) -> str:
    """The resources of an access control list: every topic, the topic “orders”."""
    kind = KINDS.get(pattern.resource, "resource")
    if pattern.resource is AclResource.CLUSTER:
        return "the cluster"
    if pattern.pattern is AclPattern.PREFIXED:
        return f"every {kind} whose name begins with “{pattern.name}”"
    return f"every {kind}" if pattern.name == ANY_NAME else f"the {kind} “{pattern.name}”"


def acl_sentence(binding: AclBinding) -> str:
    """An entry of an access control list as a sentence."""
    entry = binding.entry
    who = "Everybody" if entry.principal == EVERYBODY else entry.principal
    verb = "may" if entry.permission is AclPermission.ALLOW else "may not"
    what = "do everything with" if entry.operation is AclOperation.ALL else f"{acl_name(entry.operation)} on"
    where = "any address" if entry.host == EVERY_HOST else entry.host
    return f"{who} {verb} {what} {pattern_name(binding.pattern)}, from {where}."


def holds(owner: OwnershipDescription) -> bool:
    """Whether somebody has the resource."""
    return owner.owner_id is not None


def with_code(text: str) -> Markup:
    """Text in which `names` between back quotes are set as code."""
    parts = [str(harmless(each)) for each in text.split("`")]
    if len(parts) % 2 == 0:
        return escape(harmless(text))
    marked = (
        Markup("<code>{}</code>").format(each) if at % 2 else escape(each) for at, each in enumerate(parts)
    )
    return Markup("").join(marked)


def harmless(value: object) -> object:
    """Text without characters that change how the text around them looks: controls and directions.

    Names come from strangers: without this, one could make a page read differently than it is.
    """
    if (
        value is None
        or not isinstance(value, str)
        or isinstance(value, Markup)
        or (value.isascii() and value.isprintable())
    ):
        return value
    return "".join(each if _is_plain(each) else f"\\u{ord(each):04x}" for each in value)


def _is_plain(character: str) -> bool:
    return character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
