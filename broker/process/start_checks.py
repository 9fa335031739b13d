"""What keeps a broker from starting, in words that say what to do: decided of what it has found."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta

from holdfast_log.coordinator.znodes.brokers import BrokerInfo
from holdfast_log.protocol.inter_broker import NEWEST

DESCRIPTORS_MIN = 128
"""Open files with which a broker can serve a few clients and copy a few partitions."""


class StartError(Exception):
    """The broker cannot start; the message says why."""


def require_descriptors(limit: int) -> None:
    """Raises `StartError` if this process may open too few files."""
    if limit < DESCRIPTORS_MIN:
        raise StartError(
            f"this process may have {limit} files open, and a broker needs at least {DESCRIPTORS_MIN}, "
            "better 100000: raise the limit (ulimit -Hn, or LimitNOFILE in the unit of systemd)"
        )


def require_protocol(protocol: int, others: Sequence[BrokerInfo]) -> None:
    """Raises `StartError` if another broker does not speak the version of the protocol between brokers that
    this one is to use, or uses one that this one does not speak."""
    newer = [other for other in others if other.protocol > NEWEST]
    if newer:
        used = max(other.protocol for other in newer)
        raise StartError(
            f"{_named(newer)} version {used} of the protocol between brokers, and this Holdfast speaks none "
            f"newer than {NEWEST}: install the Holdfast of the other brokers here, or set "
            f"inter.broker.protocol.version={NEWEST} on all of them and restart them first"
        )
    older = [other for other in others if other.newest_protocol < protocol]
    if older:
        spoken = min(other.newest_protocol for other in older)
        raise StartError(
            f"inter.broker.protocol.version is {protocol} here, and {_ids(older)} no newer version than "
            f"{spoken}: set inter.broker.protocol.version={spoken} until all brokers run this Holdfast"
        )


def require_right_time(ahead_ms: int, difference_ms_max: int) -> None:
    """Raises `StartError` if this machine's clock differs from ZooKeeper's by more than
    `difference_ms_max`; negative: any difference will do."""
    if 0 <= difference_ms_max < abs(ahead_ms):
        direction = "ahead of" if ahead_ms > 0 else "behind"
        raise StartError(
            f"this machine's clock is {_shown(ahead_ms)} {direction} ZooKeeper's: with a wrong clock brokers "
            "remove records too early or too late. Set the clocks of all machines right (NTP); if the "
            "difference is wanted, raise clock.difference.max.ms"
        )


def future_file(directories: Iterable[str], now_ms: int, difference_ms_max: int) -> str | None:
    """A warning about the newest file in the log directories, if its date is more than `difference_ms_max`
    in the future. Only files that a broker writes all the time count: those directly in the directories."""
    newest_ms, newest = now_ms + difference_ms_max, None
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    modified_ms = entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000
                    if modified_ms > newest_ms and entry.is_file(follow_symlinks=False):
                        newest_ms, newest = modified_ms, entry.path
        except OSError:
            continue  # The log manager says that the directory cannot be used.
    if newest is None or difference_ms_max < 0:
        return None
    return (
        f"{newest} was written {_shown(newest_ms - now_ms)} later than this machine's clock says: the clock "
        "is wrong, or was when the broker ran last. Records that were written meanwhile may be kept for "
        "longer than retention says"
    )


def _shown(difference_ms: int) -> str:
    return str(timedelta(seconds=abs(difference_ms) // 1000))


def _named(brokers: Sequence[BrokerInfo]) -> str:
    names = ", ".join(str(each.broker_id) for each in brokers)
    return f"broker {names} uses" if len(brokers) == 1 else f"brokers {names} use"


def _ids(brokers: Sequence[BrokerInfo]) -> str:
    names = ", ".join(str(each.broker_id) for each in brokers)
    return f"broker {names} speaks" if len(brokers) == 1 else f"brokers {names} speak"
