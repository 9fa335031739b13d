"""Known bugs, put back one at a time in the brokers of a cluster that the checker drives: a checker that
misses a known bug would miss a new one too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from holdfast_log.checker.check_history import check_own_cluster
from holdfast_log.checker.clients.crew import CheckSettings
from holdfast_log.checker.cluster import CheckedCluster
from holdfast_log.checker.faults import BrokerFault, FaultPlayer
from holdfast_log.checker.holders import holder_violations
from holdfast_log.checker.load import CheckLoad
from holdfast_log.checker.parts import LoadPart
from holdfast_log.checker.recorder import Recorder
from holdfast_log.checker.verdict import judge
from tests.checker.planting import Planting

_ROUND_S = 2.0
_BEFORE_FAULT_S = 1.0
_LOOK_S = 0.2
_rounds = count(1)


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug of `tests.sim.mutants`, and what shows it: the parts of the load, the faults, and the rules, by
    the words with which their violations begin.

    A bug `from_start` replaces what a broker keeps from its start on, so that brokers must start with it.
    """

    name: str
    parts: Sequence[LoadPart]
    rules: Sequence[str]
    faults: Sequence[BrokerFault] = ()
    from_start: bool = False


PLANTED = (
    PlantedBug("offset-below-end-accepted", [LoadPart.LOG], ["stale", "out of order"]),
    PlantedBug("guards-ignored", [LoadPart.TERMS], ["two holders"]),
    PlantedBug("free-claim-takes", [LoadPart.NAMES], ["a session cut short"]),
    PlantedBug("fence-told-too-low", [LoadPart.OWNED], ["fenced"]),
    PlantedBug("retry-appended-twice", [LoadPart.REPEATED], ["doubled"]),
    PlantedBug("owner-checked-at-the-socket", [LoadPart.OWNED], ["intruder"]),
    PlantedBug("look-at-readers-once", [LoadPart.LOG], ["intruder"]),
    PlantedBug("stale-claim-granted", [LoadPart.NAMES], ["stale claim"]),
    PlantedBug(
        "fence-not-judged",
        [LoadPart.OWNED],
        ["one grant", "two holders", "ended grant", "fenced"],
    ),
    PlantedBug("deleted-topic-meant", [LoadPart.RECREATED], ["foreign"]),
    PlantedBug("refusal-forgotten", [LoadPart.REPEATED], ["behind a refused one"]),
    PlantedBug("owner-id-believed", [LoadPart.NAMES], ["one grant, two owners"]),
    PlantedBug("added-partition-unreserved", [LoadPart.GROWN], ["intruder"]),
    PlantedBug("append-id-forgotten-at-failover", [LoadPart.REPEATED], ["doubled"], [BrokerFault.MOVE]),
    PlantedBug(
        "generations-begin-anew",
        [LoadPart.OWNED],
        ["two holders", "one grant, two owners"],
        [BrokerFault.MOVE],
    ),
    PlantedBug(
        "key-versions-not-rebuilt",
        [LoadPart.KEYED],
        ["out of order", "lost update"],
        [BrokerFault.RESTART],
    ),
    PlantedBug(
        "lease-never-ends",
        [LoadPart.STUBBORN],
        ["two holders", "ended grant", "a session cut short"],
        [BrokerFault.CUT_ZOOKEEPER],
        from_start=True,
    ),
    PlantedBug("aborted-not-told", [LoadPart.LISTS], ["aborted read"]),
    PlantedBug("high-watermark-for-stable", [LoadPart.LISTS], ["aborted read", "intermediate read"]),
    PlantedBug("any-epoch-admitted", [LoadPart.LISTS], ["lost", "torn", "aborted read"]),
)


@dataclass(frozen=True, slots=True)
class Hunt:
    """How a hunt ended: after how many seconds of load, with what violations and troubles."""

    seconds: float
    violations: Sequence[str]
    troubles: Sequence[str]

    def found(self, bug: PlantedBug) -> str | None:
        """The first violation of a rule that must show the bug."""
        return next((each for each in self.violations if each.startswith(tuple(bug.rules))), None)


def hunt(
    cluster: CheckedCluster,
    planting: Planting,
    bug: PlantedBug,
    seconds: float,
    say: Callable[[str], object] = print,
) -> Hunt:
    """Plant a bug and drive the cluster by the clients and faults that should show it, in rounds on new
    topics, until its rules are violated, or for `seconds` of load."""
    spent_s = 0.0
    with planting.planted(bug.name, cluster.brokers):
        if bug.from_start:
            for broker in cluster.brokers:
                broker.stop()
                broker.start()
                cluster.wait_until_whole([])
        while True:
            ended = _round(cluster, bug, say)
            spent_s += ended.seconds
            if ended.found(bug) or ended.troubles or spent_s > seconds:
                return Hunt(spent_s, ended.violations, ended.troubles)


def _round(cluster: CheckedCluster, bug: PlantedBug, say: Callable[[str], object]) -> Hunt:
    recorder = Recorder()
    load = CheckLoad(CheckSettings(cluster.bootstrap, recorder, f"check-{next(_rounds)}"), bug.parts)
    load.create_topics()
    cluster.wait_until_whole(load.places)
    began_s = recorder.now_s()
    load.start()
    try:
        until_s = began_s + (_BEFORE_FAULT_S if bug.faults else _ROUND_S)
        while recorder.now_s() < until_s and not _is_shown(recorder):
            time.sleep(_LOOK_S)
        if bug.faults:
            player = FaultPlayer(cluster, recorder, random.Random(), say)
            player.play(bug.faults, load.places, recorder.now_s() + _LOOK_S)
    finally:
        load.end()
    cluster.wait_until_whole(load.places)
    load.read_stored()
    spent_s = recorder.now_s() - began_s
    load.delete_topics()
    troubles = [f"{times} times: {what}" for what, times in load.crew.troubles.items()]
    return Hunt(spent_s, judge(recorder.history).violations, troubles)


def _is_shown(recorder: Recorder) -> bool:
    """Whether the answers alone violate a rule. Calls under way may still explain some violations: the
    verdict comes later."""
    return any(holder_violations(list(recorder.history.ownership)))


def hunt_by_all(directory: Path, bug: PlantedBug, seconds: float) -> Hunt:
    """Drive a cluster in which the bug is planted from the start by all clients, under all faults, for some
    seconds: as `check-history.sh` does without other options."""
    recorder = Recorder()
    planting = Planting(directory / "planting", bug.name)
    began_s = recorder.now_s()
    troubles = check_own_cluster(
        directory / "cluster", recorder, seconds, tuple(BrokerFault), planting.python_arguments
    )
    return Hunt(recorder.now_s() - began_s, judge(recorder.history).violations, troubles)
