"""Topics for the rows of `benchmarks.peers`: made, written to, and deleted with their files."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaException

from benchmarks import load_generator
from benchmarks.load_error import LoadError
from benchmarks.peer_systems import PeerSystem, leaders
from benchmarks.raw_client import PRODUCE_VERSION, batch_of, check_produced, produce_frame, read_frame
from benchmarks.targets import create_topic, delete_topic
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast_log.protocol.messages.produce import ProduceRequest

FIRST_OFFSET = 2
"""Of what the rows themselves write: each partition of a new topic has two records."""
_FIRST_BATCH = batch_of(1, 5000)
"""Longer than Kafka's index.interval.bytes: the second append to a partition writes the first index entry."""
_WRITERS = 16
_IN_FLIGHT = 16
_SILENCE_S = 60.0
_LED_WITHIN_S = 240.0
_DELETED_WITHIN_S = 2.0
_PARTITION_DELETED_WITHIN_S = 0.01
_METADATA_VERSION = 8
_numbers = itertools.count()


@contextlib.contextmanager
def topic_on(system: PeerSystem, partitions: int, replicas: int = 1) -> Iterator[str]:
    """A new topic with two records in each partition. It is deleted with its files at the end: what remains
    would take the next run's memory."""
    topic = f"peers-{next(_numbers)}"
    create_topic(system.target, topic, partitions, replicas)
    led = leaders(system, topic, replicas)
    _wait_until_led(system, topic, partitions)
    for address in led:
        _wait_until_known(address, topic, partitions)
    # Kafka flushes a file to disk at the first append to each partition, and its first index entry touches a
    # new page of a mapped file, which costs up to 2 ms. This, and what other systems do then, does not belong
    # to a load that goes on for hours.
    write(system, topic, _FIRST_BATCH, 2 * partitions)
    try:
        yield topic
    finally:
        delete_topic(system.target, topic)
        deadline = time.monotonic() + _DELETED_WITHIN_S + partitions * _PARTITION_DELETED_WITHIN_S
        while time.monotonic() < deadline and _has_files(system, topic):
            time.sleep(0.05)


def _wait_until_led(system: PeerSystem, topic: str, partitions: int) -> None:
    """Return once each leader itself answers as the leader: the metadata may name it before."""
    deadline = time.monotonic() + _LED_WITHIN_S
    while True:
        try:
            load_generator.end_offsets(system.target, topic, partitions)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _wait_until_known(address: tuple[str, int], topic: str, partitions: int) -> None:
    """Return once this broker's own metadata has all partitions: Kafka refuses to write to others, even where
    it leads them. Raises LoadError if that takes long."""
    deadline = time.monotonic() + _LED_WITHIN_S
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    frame = join_parts(encode_request(request, _METADATA_VERSION, 1))
    with socket.create_connection(address, timeout=_SILENCE_S) as connection:
        while time.monotonic() < deadline:
            connection.sendall(frame)
            (found,) = decode_response(MetadataRequest, _METADATA_VERSION, read_frame(connection)).topics
            if len(found.partitions) == partitions and all(each.leader_id >= 0 for each in found.partitions):
                return
            time.sleep(0.05)
    raise LoadError(f"{address[0]}:{address[1]} does not know all partitions of {topic}")


def _has_files(system: PeerSystem, topic: str) -> bool:
    return any(
        entry.name.startswith(f"{topic}-")
        for log_dir in system.log_dirs
        if log_dir.exists()
        for entry in os.scandir(log_dir)
    )


def write(system: PeerSystem, topic: str, batch: bytes, batches: int) -> None:
    """Write batches to a topic's partitions, the same number to each, and return once all replicas have them:
    end offsets count only these. Raises LoadError if one is refused."""
    led = leaders(system, topic)
    each = batches // sum(map(len, led.values()))
    parts = [
        (address, numbers[first::_WRITERS])
        for address, numbers in led.items()
        for first in range(min(_WRITERS, len(numbers)))
    ]
    with ThreadPoolExecutor(_WRITERS) as pool:
        for done in [pool.submit(_write, *part, topic, batch, each) for part in parts]:
            done.result()


def _write(address: tuple[str, int], partitions: list[int], topic: str, batch: bytes, each: int) -> None:
    frames = {number: produce_frame(topic, number, batch, acks=-1) for number in partitions}
    in_flight: deque[int] = deque()
    with socket.create_connection(address, timeout=_SILENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in partitions * each:
            if len(in_flight) == _IN_FLIGHT:
                _take_answer(connection, in_flight.popleft())
            connection.sendall(frames[number])
            in_flight.append(number)
        for number in in_flight:
            _take_answer(connection, number)


def _take_answer(connection: socket.socket, partition: int) -> None:
    check_produced(decode_response(ProduceRequest, PRODUCE_VERSION, read_frame(connection)), partition)
