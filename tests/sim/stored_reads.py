"""Whether replicas find each of their batches, and have the files of their indexes.

An index that the disk has changed may lead elsewhere. Tools read the directory of a running broker, and
expect both index files beside each segment.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_log.broker.log import names
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.batches import whole_batches
from holdfast_log.protocol.errors import BrokerError
from tests.sim.cluster import Cluster, Machine
from tests.sim.committed_judge import stored_batches


def misread(cluster: Cluster) -> Iterator[str]:
    """Batches that in-sync replicas do not return when they are read by their offsets.

    A read may be refused while the broker examines a segment: only what stays so is a violation."""
    states = cluster.states()
    for machine in cluster.machines:
        for partition in machine.partitions():
            state = states.get(partition.key)
            if state is not None and machine.broker_id in state.isr:
                yield from _misread(machine, partition)


def _misread(machine: Machine, partition: Partition) -> Iterator[str]:
    log = partition.log
    batches = stored_batches(machine.disk, log.directory)
    for segment in log.segments:
        segment.forget_positions()  # What earlier reads and appends have found needs no index.
    # Backwards: a segment remembers where a read has ended, and uses no index for the batch that follows.
    for base_offset, (_, checksum) in sorted(batches.items(), reverse=True):
        if not log.log_start_offset <= base_offset < log.log_end_offset:
            continue
        where = f"offset {base_offset} of {partition.topic}-{partition.index} on {machine.name}"
        try:
            read = log.read(base_offset, 1, upper_offset=log.log_end_offset)
        except BrokerError as error:
            yield f"{where} cannot be read: {error}"
            continue
        found = [] if read.slice is None else whole_batches(memoryview(read.slice.read()))
        if not found or (found[0].base_offset, found[0].crc) != (base_offset, checksum):
            yield f"{where} is read as {[header.base_offset for header in found]}"


def without_indexes(cluster: Cluster) -> Iterator[str]:
    """Segments of replicas on sound disks that lack an index file.

    A broker may be replacing a segment's files: only what stays so is a violation."""
    for machine in cluster.machines:
        for partition in machine.partitions():
            if partition.is_offline:
                continue
            where = f"{partition.topic}-{partition.index} on {machine.name}"
            there = set(machine.disk.list(partition.log.directory))
            for name in sorted(there):
                file = names.parse_offset_file(name)
                if file is None or file.kind != names.LOG or file.marker:
                    continue
                for kind in (names.INDEX, names.TIME_INDEX):
                    if names.offset_file(file.offset, kind) not in there:
                        yield f"{where} has {name} without {kind}"
