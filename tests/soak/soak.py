"""The soak: python -m tests.soak.soak --minutes 60.

ZooKeeper and three brokers on loopback. Producers, members of groups, owners, consumers and administrators
come and go; every few minutes a broker is stopped in order and started again, each in turn. The resources of
every process are sampled into a CSV file, and plotted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from holdfast_log import Admin, NewTopic
from holdfast_log.broker.tools.cluster_view import ClusterView
from holdfast_log.broker.tools.local_cluster import LocalCluster
from tests.faults.reader import every_record
from tests.soak.ledger import Balance, Ledger
from tests.soak.plot import draw
from tests.soak.trend import JUDGED_SAMPLES_MIN, Trend, trends
from tests.soak.usage import Sample, Sampler
from tests.soak.visitors import KINDS, TOPICS, Place, Visitor

BROKERS = 3
_END_TIMEOUT_S = 300.0
_IN_SYNC_TIMEOUT_S = 300.0
_READ_TIMEOUT_S = 600.0
_PROPERTIES = {
    # Brokers are stopped in order: no session has to end, and on a busy machine none does.
    "zookeeper.session.timeout.ms": "60000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "controlled.shutdown.retry.backoff.ms": "200",
    # Few threads, so that the pool has started all of them before the warm-up ends: a later start of a thread
    # would look like growth.
    "background.threads": "4",
    # State that clients leave behind expires soon, so that its amount is constant after the warm-up.
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "10000",
    "producer.id.expiration.ms": "60000",
    "producer.id.expiration.check.interval.ms": "10000",
    "log.segment.delete.delay.ms": "5000",
    # A broker that another one's restart made the leader of more partitions has more connections. It yields
    # them at once, so that this does not look like growth.
    "leader.imbalance.check.interval.seconds": "10",
    "leader.imbalance.per.broker.percentage": "0",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The duration and the load of a soak. Times are in seconds."""

    duration_s: float
    restart_every_s: float = 300.0
    sample_every_s: float = 10.0
    warm_up_s: float = 120.0
    stay_s: float = 12.0
    records_per_second: float = 50.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a soak. `troubles` describes the failures that concern neither records nor trends."""

    balance: Balance
    samples: Sequence[Sample]
    trends: Sequence[Trend]
    visits: int
    restarts: int
    troubles: Sequence[str]
    seconds: float

    @property
    def faults(self) -> list[str]:
        """A description of each failure."""
        found = [f"{count} records {name}" for name, count in self.balance.faults.items()]
        found += [] if self.balance.acknowledged else ["no record was acknowledged"]
        found += [] if self.trends else ["no process lived long enough for a trend"]
        found += [f"grows: {trend}" for trend in self.trends if not trend.is_flat]
        return [*found, *self.troubles]

    def __str__(self) -> str:
        balance, flat = self.balance, sum(trend.is_flat for trend in self.trends)
        faults = len(self.faults)
        return (
            f"{self.seconds:.0f} s, {self.restarts} restarts, {self.visits} visits: {balance.acknowledged} "
            f"acknowledged, {balance.consumed} consumed, {balance.lost} lost, "
            f"{balance.duplicated} duplicated, {flat} of {len(self.trends)} trends flat, {faults} faults"
        )


def soak(directory: Path, plan: Plan) -> Outcome:
    """Run a soak with its data and `samples.csv` below `directory`. Raises an error if the cluster does not
    start or a broker does not restart."""
    ledger = Ledger()
    with (
        LocalCluster(directory / "cluster", brokers=BROKERS, properties=_PROPERTIES) as cluster,
        ClusterView(cluster.zookeeper_connect) as view,
        Sampler(directory / "samples.csv", plan.sample_every_s) as sampler,
    ):
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            admin.create_topics([NewTopic(name, count, BROKERS) for name, count in TOPICS.items()])
        (zookeeper,) = cluster.zookeepers
        sampler.watch("zookeeper", zookeeper.pid, zookeeper.directory)
        for broker in cluster.brokers:
            sampler.watch(f"broker-{broker.broker_id}", broker.pid, broker.directory)
        addresses = [(broker.host, broker.port) for broker in cluster.brokers]
        place = Place(cluster.bootstrap, addresses, ledger, plan.stay_s, plan.records_per_second)
        visitors = [Visitor(name, visit, place) for name, visit in KINDS]
        began = time.monotonic()
        for visitor in visitors:
            visitor.start()
        try:
            restarts = _restart_in_turn(cluster, view, sampler, began + plan.duration_s, plan)
            _wait_for_trends(sampler, plan)
        finally:
            place.ending.set()
        troubles = _end(visitors)
        _wait_until_whole(view)
        balance = ledger.balance(every_record(cluster.bootstrap, TOPICS, _READ_TIMEOUT_S))
        for process in ("zookeeper", *(f"broker-{broker.broker_id}" for broker in cluster.brokers)):
            sampler.leave(process)
    return Outcome(
        balance,
        sampler.samples,
        trends(sampler.samples, plan.warm_up_s),
        visits=sum(visitor.visits for visitor in visitors),
        restarts=restarts,
        troubles=troubles,
        seconds=time.monotonic() - began,
    )


def _restart_in_turn(
    cluster: LocalCluster, view: ClusterView, sampler: Sampler, until: float, plan: Plan
) -> int:
    """Restart the brokers in turn, at the plan's interval, until the soak ends. Returns the number of
    restarts."""
    restarts, due = 0, time.monotonic() + plan.restart_every_s
    while due < until:
        _sleep_until(cluster, due)
        broker = cluster.brokers[restarts % BROKERS]
        name = f"broker-{broker.broker_id}"
        sampler.leave(name)
        broker.stop()
        broker.start()
        sampler.watch(name, broker.pid, broker.directory)
        broker.wait_ready(BROKERS)
        _wait_until_whole(view)
        restarts += 1
        due += plan.restart_every_s
    _sleep_until(cluster, until)
    return restarts


def _wait_for_trends(sampler: Sampler, plan: Plan) -> None:
    """Wait until each process has a trend, if the plan is long enough for one: on a machine that stood still
    there are too few samples."""
    needed_s = plan.warm_up_s + JUDGED_SAMPLES_MIN * plan.sample_every_s
    until = time.monotonic() + 2 * needed_s
    while plan.restart_every_s > needed_s and time.monotonic() < until:
        found = {trend.process for trend in trends(list(sampler.samples), plan.warm_up_s)}
        if found >= sampler.processes:
            return
        time.sleep(plan.sample_every_s)


def _sleep_until(cluster: LocalCluster, moment: float) -> None:
    """Wait. Raises `BrokerProcessError` if a broker process ends meanwhile."""
    while (left := moment - time.monotonic()) > 0:
        cluster.check()
        time.sleep(min(left, 1.0))


def _wait_until_whole(view: ClusterView) -> None:
    """Return once every replica of the topics is in sync. Raises TimeoutError."""
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            view.wait_for_in_sync(topic, partition, range(1, BROKERS + 1), _IN_SYNC_TIMEOUT_S)


def _end(visitors: Sequence[Visitor]) -> list[str]:
    """Wait for the last visits to end, and describe the errors of all visits."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    troubles = []
    for visitor in visitors:
        if not visitor.has_ended(max(0.0, deadline - time.monotonic())):
            troubles.append(f"{visitor.name}: the last visit did not end within {_END_TIMEOUT_S:.0f} s")
        if not visitor.visits:
            troubles.append(f"{visitor.name}: no visit succeeded")
        troubles += [f"{visitor.name}: {count} times {error}" for error, count in visitor.errors.items()]
    return troubles


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", default=60.0, show_default=True, help="How long clients come and go.")
@click.option(
    "--restart-every", default=300.0, show_default=True, help="Seconds from one broker's restart to the next."
)
@click.option("--sample-every", default=10.0, show_default=True, help="Seconds from one sample to the next.")
@click.option(
    "--warm-up",
    default=120.0,
    show_default=True,
    help="Seconds after a process's start whose samples make no trend.",
)
@click.option("--rate", default=50.0, show_default=True, help="Records per second of each producer.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for samples.csv, soak.svg and the brokers' data. Without it a temporary one is made.",
)
def main(
    minutes: float,
    restart_every: float,
    sample_every: float,
    warm_up: float,
    rate: float,
    output: Path | None,
) -> None:
    """Have clients come and go on three brokers, restart each in turn, and check that every acknowledged
    record can be read, and that memory, file descriptors and threads do not grow. The last line has the
    counts; the exit status is 0 only if nothing is wrong."""
    if find_spec("matplotlib") is None:
        raise click.ClickException("the plot needs matplotlib: pip install matplotlib, or the extra [soak]")
    output = Path(tempfile.mkdtemp(prefix="holdfast-soak-")) if output is None else output
    output.mkdir(parents=True, exist_ok=True)
    plan = Plan(minutes * 60, restart_every, sample_every, warm_up, records_per_second=rate)
    outcome = soak(output, plan)
    draw(outcome.samples, output / "soak.svg")
    for trend in outcome.trends:
        print(trend)
    for fault in outcome.faults:
        print(f"FAULT: {fault}")
    print(f"samples, plot, logs and data: {output}")
    print(outcome)
    sys.exit(1 if outcome.faults else 0)


if __name__ == "__main__":
    main(prog_name="soak.sh")
