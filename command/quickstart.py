"""`holdfast quickstart`: a cluster of one broker, data through it, one enforced writer, all lines counted."""

from __future__ import annotations

import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast_log.broker.tools.broker_process import BrokerProcessError
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.tools.command import CONTEXT
from holdfast_log.coordinator.tools.zookeeper_server import ZooKeeperServerError
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode

PARTITIONS = 4
_POLL_MS = 500
_QUIET_S = 30.0
"""Time in s without a record after which the reader gives up."""
_RESULT_MS = 30_000

_NEXT = """\
What to try next:
  holdfast cluster start                a cluster that keeps its data; it prints its address
  holdfast topics --bootstrap-server HOST:PORT --create --topic first --partitions 3
  holdfast produce --bootstrap-server HOST:PORT --topic first
  holdfast consume --bootstrap-server HOST:PORT --topic first --from-beginning
  holdfast --help                       everything else
"""


class TourError(Exception):
    """A step did not see what it should."""


@click.command(context_settings=CONTEXT)
def quickstart() -> None:
    """Start ZooKeeper and a broker, move data through them, let two writers contend, and stop everything.

    The data are the lines of Python's standard library on this machine. The cluster keeps them in a temporary
    directory, which is removed at the end.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-quickstart-") as directory:
        try:
            with LocalCluster(directory) as cluster:
                click.echo(
                    f"ZooKeeper and a broker run ({time.monotonic() - started:.1f} s): {cluster.bootstrap}"
                )
                _tour(cluster.bootstrap)
        except (BrokerProcessError, ZooKeeperServerError, TourError) as error:
            raise click.ClickException(str(error)) from None
    click.echo(f"Everything has stopped after {time.monotonic() - started:.1f} s.\n\n{_NEXT}", nl=False)


def _tour(bootstrap: str) -> None:
    sent = _write(bootstrap)
    read = _read(bootstrap, sent)
    if read != sent:
        raise TourError(f"{sent:,} messages were acknowledged, but {read:,} were read")
    _contend(bootstrap)


def lines_of_the_standard_library() -> Iterator[tuple[str, bytes]]:
    """Each line of each module at the top level of Python's standard library, with the module's name."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for line in path.read_bytes().splitlines():
            yield path.stem, line


def _write(bootstrap: str) -> int:
    """Write all lines, keyed by module, and return the number acknowledged."""
    started = time.monotonic()
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic("lines", PARTITIONS)])
    with Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"}) as producer:
        responses = [
            producer.send(Message("lines", module, line)) for module, line in lines_of_the_standard_library()
        ]
        producer.flush()
    acknowledged = sum(response.error is None for response in responses)
    click.echo(
        f"Written: {acknowledged:,} lines of the standard library of Python {sys.version_info.major}."
        f"{sys.version_info.minor}, to {PARTITIONS} partitions ({time.monotonic() - started:.1f} s)"
    )
    return acknowledged


def _read(bootstrap: str, expected: int) -> int:
    """Read the topic from its start. Returns the number of records: `expected`, or fewer after a silence."""
    started = heard = time.monotonic()
    count = 0
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic("lines")
        while count < expected and time.monotonic() - heard < _QUIET_S:
            records = consumer.poll(_POLL_MS)
            if records:
                count += len(records)
                heard = time.monotonic()
    click.echo(f"Read:    {count:,} lines ({time.monotonic() - started:.1f} s)")
    return count


def _contend(bootstrap: str) -> None:
    """Let one writer own a topic while a second one tries to write to it."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic("journal", 1)])
    properties = {"bootstrap.servers": bootstrap}
    with ExclusiveProducer(properties, "journal", ProducerAccessMode.EXCLUSIVE) as owner:
        owner.send(Message("journal", value=b"I lead")).result(timeout_ms=_RESULT_MS)
        stranger = Producer(properties)
        try:
            stranger.send(Message("journal", value=b"so do I")).result(timeout_ms=_RESULT_MS)
        except BrokerError as error:
            refused = error
        else:
            raise TourError("a second writer could write to a topic that has an owner")
        finally:
            stranger.close()
    click.echo(f"Owned:   one writer has the topic journal; a second one got {type(refused).__name__}")
