"""What keeps a broker from starting, and the words that say what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast_log.broker.process.start_checks import (
    DESCRIPTORS_MIN,
    StartError,
    future_file,
    require_descriptors,
    require_protocol,
    require_right_time,
)
from holdfast_log.coordinator.znodes.brokers import PROTOCOL, BrokerInfo
from holdfast_log.protocol.inter_broker import NEWEST

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def broker(broker_id: int, newest: int, used: int = 1) -> BrokerInfo:
    return BrokerInfo(broker_id, (), features={PROTOCOL: (1, newest)}, protocol=used)


def test_brokers_that_speak_the_version_or_a_newer_one_are_joined() -> None:
    require_protocol(NEWEST, [])
    require_protocol(NEWEST, [broker(2, NEWEST), broker(3, NEWEST + 1, NEWEST)])
    require_protocol(1, [BrokerInfo(2, ())])


def test_a_version_that_another_broker_does_not_speak_is_refused_with_the_one_to_set() -> None:
    with pytest.raises(StartError) as caught:
        require_protocol(2, [broker(2, 2), BrokerInfo(3, ()), BrokerInfo(4, ())])
    assert str(caught.value) == (
        "inter.broker.protocol.version is 2 here, and brokers 3, 4 speak no newer version than 1: set "
        "inter.broker.protocol.version=1 until all brokers run this Holdfast"
    )


def test_a_version_in_use_that_this_broker_does_not_speak_is_refused() -> None:
    with pytest.raises(StartError) as caught:
        require_protocol(1, [broker(2, NEWEST + 2, NEWEST + 1)])
    assert str(caught.value) == (
        f"broker 2 uses version {NEWEST + 1} of the protocol between brokers, and this Holdfast speaks none "
        f"newer than {NEWEST}: install the Holdfast of the other brokers here, or set "
        f"inter.broker.protocol.version={NEWEST} on all of them and restart them first"
    )


@pytest.mark.parametrize(
    ("ahead_ms", "words"),
    [(3 * HOUR_MS, "3:00:00 ahead of ZooKeeper's"), (-26 * HOUR_MS, "1 day, 2:00:00 behind ZooKeeper's")],
)
def test_a_clock_that_is_far_off_is_refused(ahead_ms: int, words: str) -> None:
    with pytest.raises(StartError, match=words):
        require_right_time(ahead_ms, HOUR_MS)
    require_right_time(ahead_ms, -1)
    require_right_time(ahead_ms, abs(ahead_ms))


def test_a_file_of_the_future_is_told_of(tmp_path: Path) -> None:
    for name, ahead_s in (("old", -10), ("later", 7200), ("latest", 7500)):
        path = tmp_path / name
        path.write_text("")
        os.utime(path, (0, NOW_MS // 1000 + ahead_s))
    directories = [str(tmp_path / "missing"), str(tmp_path)]
    told = future_file(directories, NOW_MS, HOUR_MS)
    assert told is not None and told.startswith(f"{tmp_path / 'latest'} was written 2:05:00 later than")
    assert future_file(directories, NOW_MS, 3 * HOUR_MS) is None
    assert future_file(directories, NOW_MS, -1) is None


def test_too_few_descriptors_are_refused() -> None:
    require_descriptors(DESCRIPTORS_MIN)
    with pytest.raises(StartError, match=r"may have 127 files open.*at least 128"):
        require_descriptors(DESCRIPTORS_MIN - 1)
