"""Driver of kcat as packaged by Debian, which uses an old librdkafka.

kcat sends lines with its own timestamps. So values are written as hexadecimal digits, and the read from a
timestamp starts at a time between two runs of the producer.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from tests.compat.drivers.workload import (
    PARTITIONS,
    Checker,
    Job,
    key_of,
    late_index,
    partition_of,
    run,
    sharing,
    value_of,
)

WAIT_S = 120


def _kcat(job: Job, *arguments: str, lines: bytes | None = None) -> str:
    command = ["kcat", "-b", job.bootstrap, *arguments]
    done = subprocess.run(command, input=lines, capture_output=True, timeout=WAIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return done.stdout.decode()


def create(job: Job) -> dict[str, Any]:
    # kcat cannot create topics, but its metadata request makes the broker create a missing topic.
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        listing = json.loads(_kcat(job, "-L", "-J", "-t", job.topic))
        partitions = listing["topics"][0]["partitions"]
        if partitions and all(partition["leader"] >= 0 for partition in partitions):
            return {"created": job.topic, "partitions": len(partitions)}
    raise TimeoutError(f"{job.topic} was not created")


def _send(job: Job, first: int, last: int) -> None:
    for partition in range(PARTITIONS):
        lines = b"".join(
            b"%s:%s\n" % (key_of(index), value_of(index).hex().encode())
            for index in range(first, last)
            if partition_of(index) == partition
        )
        _kcat(
            job,
            *("-P", "-t", job.topic, "-p", str(partition), "-K", ":", "-z", job.codec),
            *("-X", f"enable.idempotence={str(job.idempotent).lower()}", "-X", "acks=all"),
            lines=lines,
        )


def produce(job: Job) -> dict[str, Any]:
    late = late_index(job.count)
    _send(job, 0, late)
    between_ms = int(time.time() * 1000) + 2
    while int(time.time() * 1000) <= between_ms:
        pass
    _send(job, late, job.count)
    return {"delivered": job.count, "problems": [], "between_ms": between_ms}


def _read(job: Job, position: str, first_index: int) -> dict[str, Any]:
    checker = Checker(first_index, job.count)
    for partition in range(PARTITIONS):
        out = _kcat(
            job,
            *("-C", "-q", "-e", "-t", job.topic, "-p", str(partition), "-o", position, "-f", "%o %k %s\n"),
            # kcat detects the end of the partition only after a fetch has waited there.
            *("-X", "fetch.wait.max.ms=10"),
        )
        for line in out.splitlines():
            offset, key, value = line.split(" ", 2)
            checker.record(partition, int(offset), key.encode(), bytes.fromhex(value))
    return checker.result()


def consume(job: Job) -> dict[str, Any]:
    late = late_index(job.count)
    return {
        "start": _read(job, "beginning", 0),
        "offset": _read(job, str(late // PARTITIONS), late),
        "timestamp": _read(job, f"s@{job.base_ms}", late),
    }


def share(job: Job) -> dict[str, Any]:
    def send(indexes: range) -> None:
        for partition in range(PARTITIONS):
            keys = (key_of(index) for index in indexes if partition_of(index) == partition)
            _kcat(
                job,
                *("-P", "-t", job.topic, "-p", str(partition), "-K", ":"),
                lines=b"".join(key + b":\n" for key in keys),
            )

    def read(count: int) -> list[int]:
        out = _kcat(
            job,
            *("-G", job.topic, "-q", "-c", str(count), "-X", "auto.offset.reset=earliest", "-f", "%k\n"),
            job.topic,
        )
        return [int(line) for line in out.splitlines()]

    return sharing(read, send)


def admin(job: Job) -> dict[str, Any]:
    create(job)
    _kcat(job, "-P", "-t", job.topic, "-p", "0", lines=b"one\ntwo\n")
    listing = json.loads(_kcat(job, "-L", "-J"))
    topics = {topic["topic"]: topic for topic in listing["topics"]}
    offsets = _kcat(job, "-Q", "-t", f"{job.topic}:0:-1")
    return {
        "partitions": len(topics[job.topic]["partitions"]),
        "brokers": sorted(broker["id"] for broker in listing["brokers"]),
        "controller": listing["controllerid"],
        "offsets": offsets.strip(),
    }


if __name__ == "__main__":
    run({"create": create, "produce": produce, "consume": consume, "share": share, "admin": admin})
