"""What is still open in a cluster: after the faults, every transaction has to end."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.coordinator.transactions.states import TransactionState
from tests.sim.cluster import Cluster

_OPEN = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)


def open_transactions(cluster: Cluster) -> Iterator[str]:
    """The partitions whose readers of committed records wait for the end of a transaction, and the brokers
    that coordinate one whose end is not decided, or not written everywhere."""
    for machine in cluster.machines:
        for partition in machine.partitions():
            stable, end = partition.last_stable_offset, partition.high_watermark
            if isinstance(partition.role, Leadership) and stable < end:
                yield f"{partition.topic}-{partition.index} from {stable} to {end}"
        if machine.broker is None or machine.broker.node is None:
            continue
        states = machine.broker.node.transactions.transactions.states()
        for state in _OPEN:
            if states[state]:
                yield f"{states[state]} of broker {machine.broker_id} in {state.title}"
