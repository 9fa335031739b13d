"""A fault: all brokers are stopped in order, and only one of them comes back. A client asks it for records
that it knew to be committed. With min.insync.replicas=2 it can commit nothing alone, but it must serve those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from holdfast_log.protocol.schema import received_records
from tests.sim.client import RETRY_S, Client, Surroundings
from tests.sim.cluster import Machine
from tests.sim.consumer import IDS_VERSION
from tests.sim.faults import End
from tests.sim.history import Incarnation

if TYPE_CHECKING:
    from tests.sim.long_faults import LongFaults

_LAST_SHARE = 0.7
"""How often the broker that was stopped last comes back, rather than the one before it."""


class Asker(Client):
    """Asks one broker for the last committed record of each partition that it leads, until it has each."""

    def __init__(self, around: Surroundings, name: str, machine: Machine) -> None:
        super().__init__(around, name)
        self.missing: dict[Incarnation, int] = {}
        """Partitions of which the client has got nothing yet, with the offset before which the broker knew
        everything to be committed."""
        self._machine = machine
        self._is_over = False

    def begin(self) -> None:
        self._ask()

    def end(self) -> None:
        """Ask no more: the broker is no longer alone."""
        self._is_over = True

    def _ask(self) -> None:
        if self._is_over:
            return
        led = dict(self._led())
        if not led:
            self.later(RETRY_S, self._ask)
            return
        topics = [
            FetchTopic(
                topic=place.at[0],
                topic_id=place.topic_id,
                partitions=[
                    FetchPartition(
                        partition=place.at[1],
                        current_leader_epoch=epoch,
                        fetch_offset=self.missing[place] - 1,
                        partition_max_bytes=8 * 1024,
                    )
                ],
            )
            for place, epoch in led.items()
        ]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=64 * 1024, topics=topics, forgotten_topics_data=[]
        )
        self.send(self._machine.address, request, IDS_VERSION).addCallbacks(
            lambda response: self._answered(response, led), lambda failure: self.later(RETRY_S, self._ask)
        )

    def _led(self) -> Iterator[tuple[Incarnation, int]]:
        """The partitions that the broker leads, whose last committed record was not deleted, with the leader
        epoch."""
        for place, known in self.missing.items():
            partition = self._machine.partition(place.at)
            if (
                partition is not None
                and isinstance(partition.role, Leadership)
                and partition.log.log_start_offset < known
            ):
                yield place, partition.leader_epoch

    def _answered(self, response: FetchResponse, led: dict[Incarnation, int]) -> None:
        self.history.operations += 1
        places = {(place.topic_id, place.at[1]): place for place in led}
        may_have_more = _may_have_more(response)
        for topic in response.responses:
            for row in topic.partitions:
                place = places[topic.topic_id, row.partition_index]
                if self._is_over or row.error_code != ErrorCode.NONE:
                    continue
                known = self.missing[place]
                # Compaction may have removed the last committed record.
                is_gone = place.at[0] in self.history.compacted and row.high_watermark >= known
                has_none = not received_records(row.records) and not is_gone
                if has_none and may_have_more:
                    continue
                del self.missing[place]
                if has_none:
                    self.history.violation(
                        f"{place}: broker {self._machine.broker_id} leads alone, in epoch {led[place]}, and "
                        f"serves nothing at {known - 1}, its high watermark is {row.high_watermark}; it knew "
                        f"before its stop that everything before {known} is committed"
                    )
        self.later(RETRY_S, self._ask)


def _may_have_more(response: FetchResponse) -> bool:
    """Whether the broker may have records that this response lacks: those of other partitions have taken the
    bytes that the client's quota allows, or the client is over it. The next response has others."""
    has_any = any(received_records(row.records) for topic in response.responses for row in topic.partitions)
    return has_any or response.throttle_time_ms > 0


def leave_alone(faults: LongFaults, machine: Machine) -> End | None:
    """All brokers are stopped in order, one after another. One of the last two starts alone."""
    machines = faults.cluster.machines
    if len(machines) < 3 or not faults.cluster.is_whole() or not all(each.is_running for each in machines):
        return None
    order = faults.rng.sample(machines, len(machines))
    lone = order[-1] if faults.rng.random() < _LAST_SHARE else order[-2]
    asker = Asker(faults.around, "asker", lone)
    end_steps = faults.take(_steps(order, lone, asker), *machines)

    def end() -> None:
        asker.end()
        end_steps()

    return end


def _steps(order: list[Machine], lone: Machine, asker: Asker) -> Iterator[None]:
    for machine in order:
        if machine is lone:
            asker.missing.update(_known(lone))
        machine.stop()
        while machine.is_up:
            yield
    lone.start()
    asker.start()
    while asker.missing:
        yield
    asker.end()


def _known(machine: Machine) -> dict[Incarnation, int]:
    """The high watermarks of a broker's replicas that have committed records."""
    return {
        Incarnation(partition.key, partition.topic_id): partition.high_watermark
        for partition in machine.partitions()
        if partition.high_watermark > partition.log.log_start_offset and not partition.is_offline
    }
