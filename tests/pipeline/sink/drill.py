"""A streaming query under faults: python -P -m tests.pipeline.sink.drill --fault all --batches 200.

For each fault a query copies numbered rows into a topic of three partitions, by two tasks for each
micro-batch, which write to all partitions in several chunks. The drill then reads the topic: each row must be
there once, and rows that one task wrote to one partition in their order. It prints a line for each fault, and
ends with 1 if a row is lost, there twice or out of order, or if a fault did not strike.

With --delivery at-least-once the same faults write rows twice, except those of `HARMLESS`. Then the drill
ends with 1 if one of `DUPLICATING` writes none twice, or if a row is lost.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from pyspark.sql import SparkSession

from holdfast_log import Admin
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.coordinator.tools.directories import IMPORT_ROOT
from holdfast_log.coordinator.tools.zookeeper_process import die_with_parent
from holdfast_log.pipeline.sink.options import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.pipeline.sink.drill_query import (
    TIMEOUT_S,
    Place,
    Verdict,
    fill,
    finish,
    judge,
    make_folders,
    session,
    start,
)
from tests.pipeline.sink.faulty import LAST, NO_FAULT, RELEASED, SLOW, STALLED, TASK_FAULTS, ZOMBIES

_ZOMBIES_S = 300.0
_SESSION_MS = 4_000
"""Session timeout of the brokers in ZooKeeper: short, so that others soon lead the partitions of one that was
killed."""
_EXPIRED = "has expired; opening a new one"
"""What a broker logs when ZooKeeper has ended its session."""
_LOOK_S = 0.02
_SAID = 2000
"""Characters that are shown of what an instance said before it ended."""
_OTHER_S = 3600.0
"""How long the second of two instances may take, which writes everything if it wins."""


# Faults -----------------------------------------------------------------------------------------------


def under_task_faults(spark: SparkSession, place: Place, batches: int, fault: str) -> Verdict:
    """The first attempts of tasks fail, in two of three micro-batches."""
    wanted = fill(place, batches)
    finish(start(spark, place, fault))
    note = ""
    if fault == "zombie":
        reports = _reports_of_zombies(place)
        refused = sum(report.startswith("refused") for report in reports)
        silent = place.strikes() - len(reports)
        note = f", zombies {len(reports)}, refused {refused}" + (f", SILENT {silent}" if silent else "")
    return judge(place, fault, wanted, recoveries=place.strikes(), note=note)


def _reports_of_zombies(place: Place) -> list[str]:
    """What the zombies reported, once all have, or after `_ZOMBIES_S`."""
    directory, deadline = place.directory / ZOMBIES, time.monotonic() + _ZOMBIES_S
    while len(list(directory.glob("*.txt"))) < place.strikes() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return [report.read_text() for report in directory.glob("*.txt")]


def under_stops(
    spark: SparkSession, place: Place, batches: int, chance: random.Random, stops: int = 20
) -> Verdict:
    """The query is stopped with writers running, and started again with its checkpoint."""
    wanted = fill(place, batches)
    stopped = 0
    for _ in range(min(stops, 2 + batches // 4)):
        query = start(spark, place, SLOW)
        _await_batches(place, 1, lambda query=query: query.isActive)  # type: ignore[misc]
        time.sleep(chance.uniform(0.1, 0.8))
        stopped += query.isActive and place.begun() > place.committed()
        query.stop()
    finish(start(spark, place))
    return judge(place, "query-stop", wanted, recoveries=stopped)


def _hold_last(place: Place, batches: int) -> None:
    """Keep a slow query in its last micro-batch until it is stopped, or until tasks are released."""
    place.directory.joinpath(LAST).write_text(str(batches - 1))


def _await_batches(place: Place, count: int, is_running: Callable[[], bool]) -> None:
    """Wait until the query is in the `count`th micro-batch that is not committed yet, or has ended."""
    aim, deadline = place.committed() + count, time.monotonic() + TIMEOUT_S
    while place.begun() < aim and is_running() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def under_driver_kills(
    spark: SparkSession, place: Place, batches: int, kills: int, chance: random.Random
) -> Verdict:
    """The driver is killed (SIGKILL, with its JVM), and started again with its checkpoint; at last here."""
    wanted = fill(place, batches)
    _hold_last(place, batches)
    killed = 0
    for _ in range(kills):
        with driver(place, SLOW) as process:
            more = chance.randrange(1, 2 + batches // 40)
            count = min(1 + more, batches - place.committed())
            _await_batches(place, count, lambda process=process: process.poll() is None)  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 0.8))
            killed += process.poll() is None
    finish(start(spark, place))
    return judge(place, "driver-kill", wanted, recoveries=killed)


@contextmanager
def driver(place: Place, fault: str) -> Iterator[subprocess.Popen[bytes]]:
    """The query in a driver of its own, which is killed at the end of the block with all its processes."""
    arguments = [place.bootstrap, place.topic, str(place.directory), place.delivery, fault]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.pipeline.sink.driver", *arguments],
        cwd=IMPORT_ROOT,
        start_new_session=True,
        preexec_fn=die_with_parent,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # The driver and its JVM are one process group.
        process.wait(300)


def under_two_instances(spark: SparkSession, place: Place, batches: int) -> Verdict:
    """Two drivers run the query at once, with copies of one checkpoint."""
    wanted = fill(place, batches)
    _hold_last(place, batches)
    # The id of the query comes from the checkpoint, which must exist before it can be copied.
    first = start(spark, place, SLOW)
    deadline = time.monotonic() + TIMEOUT_S
    while not place.checkpoint.joinpath("metadata").exists():
        if not first.isActive or time.monotonic() > deadline:
            raise RuntimeError(f"the query has made no checkpoint: {first.exception()}")
        time.sleep(_LOOK_S)
    first.stop()
    other = Place(place.bootstrap, place.topic, place.directory / "other", place.delivery)
    shutil.copytree(place.checkpoint, other.checkpoint)
    shutil.copytree(place.input, other.input)
    make_folders(other)
    with driver(other, STALLED) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while not other.strikes() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        # Its tasks wait amid their rows, until this instance has committed a micro-batch. Then both write.
        error = ""
        try:
            query = start(spark, place)
            committed = place.committed()
            while place.committed() == committed and not query.awaitTermination(_LOOK_S):
                pass
            other.directory.joinpath(RELEASED).touch()
            finish(query)
        except Exception as failure:
            error = str(failure)
        other.directory.joinpath(RELEASED).touch()
        assert process.stderr is not None
        _, said = process.communicate(timeout=_OTHER_S)
        error += said.decode(errors="replace")
    # The one that was refused is started again: it finds what the other one has written.
    finish(start(spark, place))
    if place.delivery == AT_LEAST_ONCE:
        both = process.returncode == 0 and other.committed() == place.committed()
        note = f", both instances wrote everything: {'yes' if both else 'NO'}"
        return judge(place, "two-instances", wanted, recoveries=int(both), note=note)
    refused = "has taken over" in error
    said_so = "yes" if refused else f"NO: {error[-_SAID:]}"
    note = f", one instance was refused with the other's name: {said_so}"
    return judge(place, "two-instances", wanted, recoveries=int(refused), note=note)


def under_broker_kills(
    spark: SparkSession,
    place: Place,
    batches: int,
    cluster: LocalCluster,
    kills: int,
    chance: random.Random,
) -> Verdict:
    """Leaders of the topic's partitions are killed (SIGKILL) and started again, while the query writes."""
    wanted = fill(place, batches)
    _hold_last(place, batches)
    query = start(spark, place, SLOW)
    killed = 0
    _await_batches(place, 1, lambda: query.isActive)
    while killed < kills and not query.awaitTermination(chance.uniform(0.5, 4.0)):
        leader = _a_leader(place, chance)
        broker = next((each for each in cluster.brokers if each.broker_id == leader), None)
        if broker is None:
            continue
        broker.kill()
        killed += 1
        # Long enough, usually, for the other brokers to lead its partitions before it is back.
        time.sleep(chance.uniform(0.2, 1.6 * _SESSION_MS / 1000))
        broker.start()
        cluster.wait_ready()
    place.directory.joinpath(RELEASED).touch()
    finish(query)
    return judge(place, "broker-kill", wanted, recoveries=killed)


def _a_leader(place: Place, chance: random.Random) -> int:
    """The broker that leads one of the topic's partitions; -1 if there is none now."""
    with Admin({"bootstrap.servers": place.bootstrap}) as admin:
        (topic,) = admin.describe_topics([place.topic])
    return chance.choice(topic.partitions).leader


def under_zookeeper_losses(
    spark: SparkSession,
    place: Place,
    batches: int,
    cluster: LocalCluster,
    losses: int,
    chance: random.Random,
) -> Verdict:
    """ZooKeeper stands still until the sessions of all brokers expire, while the query writes; every other
    time it is killed and started again instead, and keeps the sessions."""
    wanted = fill(place, batches)
    _hold_last(place, batches)
    before = _expired_sessions(cluster)
    query = start(spark, place, SLOW)
    (zookeeper,) = cluster.zookeepers
    lost = 0
    _await_batches(place, 1, lambda: query.isActive)
    while lost < losses and not query.awaitTermination(chance.uniform(0.5, 4.0)):
        if lost % 2:
            zookeeper.restart()
        else:
            zookeeper.pause()
            time.sleep(1.5 * _SESSION_MS / 1000)
            zookeeper.resume()
        cluster.wait_ready()
        lost += 1
    place.directory.joinpath(RELEASED).touch()
    finish(query)
    expired = _expired_sessions(cluster) - before
    return judge(
        place,
        "zookeeper-loss",
        wanted,
        recoveries=lost if expired else 0,
        note=f", sessions expired {expired}",
    )


def _expired_sessions(cluster: LocalCluster) -> int:
    return sum(broker.log.count(_EXPIRED) for broker in cluster.brokers)


# The command ------------------------------------------------------------------------------------------


FAULTS = (
    NO_FAULT,
    *TASK_FAULTS,
    "query-stop",
    "two-instances",
    "driver-kill",
    "broker-kill",
    "zookeeper-loss",
)
ALL = "all"
DUPLICATING = ("raise-amid", "raise-after", "kill-amid", "kill-after", "zombie", "two-instances")
"""Faults that always write rows twice with at-least-once. A stop and a killed driver do so if a task has rows
in the log at that moment and its micro-batch is not committed."""
HARMLESS = {
    NO_FAULT: "nothing fails, so nothing is repeated",
    "raise-before": "the attempt that fails has written nothing",
    "broker-kill": "the producer is idempotent, and repeats a batch at the next leader under its number",
    "zookeeper-loss": "no task fails: the producer waits for a leader, and is idempotent",
}
"""Faults that write no row twice even with at-least-once, and why."""


@click.command(context_settings={"show_default": True})
@click.option("--batches", default=200, help="Micro-batches for each fault.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    default=(ALL,),
    type=click.Choice([ALL, *FAULTS]),
    help="Only this fault; repeatable.",
)
@click.option(
    "--kills", default=5, help="How often the driver, or a broker, is killed, or ZooKeeper stopped."
)
@click.option(
    "--delivery", default=EXACTLY_ONCE, type=click.Choice([EXACTLY_ONCE, AT_LEAST_ONCE]), help="Of the sink."
)
@click.option(
    "--brokers", default=0, show_default="3 if a broker is to be killed, else 1", help="Number of brokers."
)
@click.option("--seed", default=1, help="Of the moments of stops and kills.")
def main(batches: int, faults: tuple[str, ...], kills: int, delivery: str, brokers: int, seed: int) -> None:
    """Run a streaming query into the Spark sink under faults, and compare the topic with its input.

    Prints a line for each fault: micro-batches; rows; duplicates; lost rows; rows out of order; appends that
    were refused because the log had grown (conflicts); chunks and rows that an earlier attempt had written
    (repeats, rows found); faults after which the query continued (recoveries). Exit status 1 if a row is
    lost, duplicated or out of order, or if a fault did not strike. The last lines say how many appends were
    refused under each fault, and that is a violation if none was.

    With at-least-once the lines say how many rows are there twice, or why none can be. Exit status 1 if a row
    is lost, if a fault did not strike, or if one that must write rows twice has not.
    """
    chosen = FAULTS if ALL in faults else tuple(dict.fromkeys(faults))
    count = brokers or (3 if "broker-kill" in chosen else 1)
    if "broker-kill" in chosen and count < 3:
        raise click.UsageError("broker-kill needs 3 brokers, so that others lead while one is dead")
    chance = random.Random(seed)
    violations, verdicts = [], []
    with (
        tempfile.TemporaryDirectory(prefix="sink-drill-", ignore_cleanup_errors=True) as folder,
        LocalCluster(
            Path(folder) / "cluster",
            brokers=count,
            properties={"zookeeper.session.timeout.ms": str(_SESSION_MS)},
        ) as cluster,
    ):
        spark = session()
        for fault in chosen:
            place = Place(cluster.bootstrap, f"drill-{fault}", Path(folder) / fault, delivery)
            began = time.monotonic()
            verdict = _drill(spark, place, batches, fault, kills, cluster, chance)
            verdict.seconds = time.monotonic() - began
            if delivery == AT_LEAST_ONCE and fault in HARMLESS and not verdict.duplicates:
                verdict.note += f", no duplicates because {HARMLESS[fault]}"
            print(verdict, flush=True)
            verdicts.append(verdict)
            if problem := _problem(verdict):
                violations.append(f"{fault}: {problem}")
        spark.stop()
    if delivery == EXACTLY_ONCE:
        conflicts = sum(verdict.totals.conflicts for verdict in verdicts)
        print(f"conflicts {conflicts}: {', '.join(f'{v.fault} {v.totals.conflicts}' for v in verdicts)}")
        if not conflicts:
            violations.append("no append was refused because the log had grown: try more --batches")
    else:
        print(f"duplicates: {', '.join(f'{v.fault} {v.duplicates}' for v in verdicts)}")
    print("no violation" if not violations else "VIOLATION: " + "; ".join(violations))
    sys.exit(1 if violations else 0)


def _problem(verdict: Verdict) -> str:
    """What is wrong; empty if nothing is. Duplicates are no fault of a write at least once."""
    if verdict.missing or (verdict.delivery == EXACTLY_ONCE and not verdict.is_exact):
        return "the topic is not the input"
    if verdict.fault != NO_FAULT and not verdict.recoveries:
        return "the fault did not strike"
    if verdict.delivery == AT_LEAST_ONCE and verdict.fault in DUPLICATING and not verdict.duplicates:
        return "no row is there twice, although the fault repeats rows that were written"
    return "a zombie did not end" if "SILENT" in verdict.note else ""


def _drill(
    spark: SparkSession,
    place: Place,
    batches: int,
    fault: str,
    kills: int,
    cluster: LocalCluster,
    chance: random.Random,
) -> Verdict:
    match fault:
        case "query-stop":
            return under_stops(spark, place, batches, chance)
        case "driver-kill":
            return under_driver_kills(spark, place, batches, kills, chance)
        case "two-instances":
            return under_two_instances(spark, place, batches)
        case "broker-kill":
            return under_broker_kills(spark, place, batches, cluster, kills, chance)
        case "zookeeper-loss":
            return under_zookeeper_losses(spark, place, batches, cluster, kills, chance)
    return under_task_faults(spark, place, batches, fault)


if __name__ == "__main__":
    main()
