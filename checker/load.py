"""The load of a check: its topics, its clients, and the records that are stored at the end."""

from __future__ import annotations

from holdfast_log.checker.calls import StoredRecords
from holdfast_log.checker.clients.claimant import RivalClaimant
from holdfast_log.checker.clients.crew import CheckClient, CheckSettings, Crew
from holdfast_log.checker.clients.follower import Follower
from holdfast_log.checker.clients.register import RegisterClient
from holdfast_log.checker.clients.writers import ConditionalWriter, ExclusiveWriter, TermWriter
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.consumer import Consumer
from holdfast_log.protocol.topic_partition import TopicPartition

_END_TIMEOUT_S = 60.0
_READ_TIMEOUT_S = 120.0
_POLL_MS = 500


class CheckLoad:
    """Clients of all kinds, on new topics of up to three replicas."""

    def __init__(self, settings: CheckSettings) -> None:
        self._settings = settings
        self._log = [TopicPartition(settings.topic("log"), number) for number in range(2)]
        self._exclusive = TopicPartition(settings.topic("exclusive"), 0)
        self._register = TopicPartition(settings.topic("register"), 0)
        self._terms = TopicPartition(settings.topic("terms"), 0)
        self._accounts = TopicPartition(settings.topic("accounts"), 0)
        self.places = [*self._log, self._exclusive, self._register, self._terms, self._accounts]
        self.crew: Crew

    def create_topics(self) -> None:
        """Create the topics. The two that guards connect have the same replicas, so one broker leads both."""
        with Admin(self._settings.properties()) as admin:
            brokers = sorted(node.id for node in admin.describe_cluster().nodes)
            replicas = min(3, len(brokers))
            together = {0: brokers[-replicas:]}
            configs: dict[str, str | None] = {"min.insync.replicas": str(max(1, replicas - 1))}
            topics = [
                NewTopic(self._log[0].topic, len(self._log), replicas, configs),
                NewTopic(self._exclusive.topic, 1, replicas, configs),
                NewTopic(self._register.topic, 1, replicas, configs),
                NewTopic(self._terms.topic, configs=configs, assignment=together),
                NewTopic(self._accounts.topic, configs=configs, assignment=together),
            ]
            admin.create_topics(topics)

    def delete_topics(self) -> None:
        with Admin(self._settings.properties()) as admin:
            admin.delete_topics(sorted({place.topic for place in self.places}))

    def start(self) -> None:
        """Start all clients, each in a thread."""
        self.crew = Crew(self._clients(), self._settings.pace_s)
        self.crew.start()

    def end(self) -> None:
        """Let all clients end."""
        self.crew.end(_END_TIMEOUT_S)

    def read_stored(self) -> None:
        """Record what every partition has. Raises TimeoutError if that takes longer than two minutes."""
        recorder = self._settings.recorder
        deadline_s = recorder.now_s() + _READ_TIMEOUT_S
        with Consumer({**self._settings.properties(), "auto.offset.reset": "earliest"}) as consumer:
            ends = consumer.end_offsets(self.places)
            for place in self.places:
                records: list[tuple[int, str]] = []
                consumer.add_topic(*place)
                while len(records) < ends[place]:
                    records += [(each.offset, each.value.decode()) for each in consumer.poll(_POLL_MS)]
                    if recorder.now_s() > deadline_s:
                        raise TimeoutError(f"{place} could not be read up to its end, {ends[place]}")
                consumer.remove_topic(*place)
                recorder.add(StoredRecords(*place, tuple(records)))

    def _clients(self) -> list[CheckClient]:
        settings = self._settings
        clients: list[CheckClient] = [
            Follower(f"follower-{number}", settings, self.places) for number in "12"
        ]
        for group in ("red", "blue"):
            name = settings.topic(group)
            clients += [
                RivalClaimant(f"claimant-{group}-{number}", settings, name, "leader") for number in "123"
            ]
        readers = settings.topic("readers")
        clients += [RivalClaimant(f"reader-{number}", settings, readers, self._log[0]) for number in "12"]
        clients += [
            ConditionalWriter(f"writer-{place.partition}-{number}", settings, place)
            for place in self._log
            for number in "12"
        ]
        clients += [ExclusiveWriter(f"exclusive-{number}", settings, self._exclusive) for number in "12"]
        clients += [RegisterClient(f"register-{number}", settings, self._register) for number in "123"]
        clients += [TermWriter(f"term-{number}", settings, self._terms, self._accounts) for number in "12"]
        return clients
