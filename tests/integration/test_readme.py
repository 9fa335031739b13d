"""The README's examples, unchanged except for the broker's address, print what the README says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from tests.cluster import Cluster
from tests.integration.programs import finished

HOME = Path(__file__).parent.parent.parent
README = (HOME / "README.md").read_text()


def block(language: str, containing: str) -> str:
    """The README's only code block in `language` that contains a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = [text for text in blocks if containing in text]
    return found


def run(command: list[str], given: str | None = None) -> str:
    done = finished(command, given)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_example_writes_and_reads(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    example = block("python", "from holdfast_log import Consumer").replace("localhost:9092", broker.address)
    printed = run([sys.executable, "-c", example]).splitlines()
    assert printed[0].startswith("RecordMetadata(topic='first'")
    assert printed[1:] == ["0 b'k' b'hello'"]


def test_the_python_example_reads_all_records_of_a_longer_topic(cluster: Cluster) -> None:
    """One poll returns at most `max.poll.records`, which is 500."""
    (broker,) = cluster.start()
    with Producer({"bootstrap.servers": broker.address}) as producer:
        for number in range(1200):
            producer.send(Message("first", value=str(number)))
    example = block("python", "from holdfast_log import Consumer").replace("localhost:9092", broker.address)
    assert len(run([sys.executable, "-c", example]).splitlines()) == 1 + 1200 + 1


def test_the_single_writer_example_gets_a_new_epoch_in_each_run(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    example = block("python", "ExclusiveProducer").replace("localhost:9092", broker.address)
    assert run([sys.executable, "-c", example]) == "epoch 1 from offset 0\n"
    assert run([sys.executable, "-c", example]) == "epoch 2 from offset 1\n"


def test_the_command_line_example_writes_and_reads(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    create, produce, consume = block("sh", "topics.sh").replace("$BROKER", broker.address).splitlines()
    assert run(create.split()) == "Created topic first.\n"
    run(produce.split(), given="one\ntwo\n")
    assert sorted(run([*consume.split(), "--max-messages", "2"]).splitlines()) == ["one", "two"]
