"""The load of a check: its topics, its clients, and the records that are stored at the end."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import closing, suppress

from holdfast_log.checker.calls import DeletedLog, StoredList, StoredRecords
from holdfast_log.checker.clients.crew import CheckClient, CheckSettings, Crew
from holdfast_log.checker.clients.follower import Follower
from holdfast_log.checker.clients.lists import FollowedLists, list_name
from holdfast_log.checker.clients.outsiders import Impostor
from holdfast_log.checker.clients.topic_changes import Grower, Recreator, label_of
from holdfast_log.checker.cluster import TRANSACTIONS
from holdfast_log.checker.parts import RECIPES, LoadPart, PartTopic, place_of
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import RequestTimeoutError
from holdfast_log.protocol.errors import BrokerError, UnknownTopicOrPartitionError
from holdfast_log.protocol.topic_partition import TopicPartition

_QUIET = (Impostor, Grower, Recreator)
"""Clients that record hardly anything, or nothing unless a broker is wrong."""
_END_TIMEOUT_S = 180.0
_READ_TIMEOUT_S = 240.0
_POLL_MS = 500
_LOOK_S = 0.2


class CheckLoad:
    """Clients of all kinds, or of some `parts`, on new topics of up to three replicas.

    `places` are the partitions that are there from the beginning to the end, with that of the brokers for
    transactions if the load has any.
    """

    def __init__(self, settings: CheckSettings, parts: Collection[LoadPart] = tuple(LoadPart)) -> None:
        self._settings = settings
        self._recipes = [RECIPES[part] for part in parts]
        self._topics = [topic for recipe in self._recipes for topic in recipe.topics]
        self._logs = self._places_of(has_lists=False)
        self._lists = self._places_of(has_lists=True)
        self.places = [*self._logs, *self._lists, *([TRANSACTIONS] if self._lists else [])]
        self._brokers: list[int] = []
        self._recording: set[str] = set()
        self.crew: Crew

    def _places_of(self, *, has_lists: bool) -> list[TopicPartition]:
        return [
            place_of(self._settings, topic.name, number)
            for topic in self._topics
            for number in range(topic.partitions)
            if topic.has_lists == has_lists and not topic.is_changing
        ]

    def create_topics(self) -> None:
        """Create the topics, and the brokers' own topics for groups and transactions. The two that guards
        connect have the same replicas, so one broker leads both."""
        with Admin(self._settings.properties()) as admin:
            self._brokers = sorted(node.id for node in admin.describe_cluster().nodes)
            if self._topics:
                admin.create_topics([self._new_topic(topic) for topic in self._topics])
            admin.list_group_offsets(self._settings.topic("readers"))
            if self._lists:
                with suppress(BrokerError):  # Nobody has used the id: looking for its coordinator is enough.
                    admin.describe_transactions([self._settings.topic("lists-0")])

    def _new_topic(self, topic: PartTopic) -> NewTopic:
        replicas = min(3, len(self._brokers))
        configs: dict[str, str | None] = {"min.insync.replicas": str(max(1, replicas - 1)), **topic.configs}
        name = self._settings.topic(topic.name)
        if topic.is_together:
            return NewTopic(name, configs=configs, assignment={0: self._brokers[-replicas:]})
        return NewTopic(name, topic.partitions, replicas, configs)

    def delete_topics(self) -> None:
        with Admin(self._settings.properties()) as admin:
            present = set(admin.list_topics())
            wanted = {self._settings.topic(topic.name) for topic in self._topics}
            with suppress(UnknownTopicOrPartitionError):  # A broker may not know yet that it was deleted.
                admin.delete_topics(sorted(wanted & present))

    def start(self) -> None:
        """Start all clients, each in a thread."""
        clients = self._clients()
        self._recording = {client.name for client in clients if not isinstance(client, _QUIET)}
        self.crew = Crew(clients, self._settings.pace_s)
        self.crew.start()

    def wait_until_heard(self, seconds: float) -> None:
        """Wait until every client has recorded a call, but no longer than so many seconds: a fault shows
        little while owners own nothing yet."""
        recorder = self._settings.recorder
        until_s = recorder.now_s() + seconds
        while self.silent_clients() and recorder.now_s() < until_s:
            time.sleep(_LOOK_S)

    def end(self) -> None:
        """Let all clients end."""
        self.crew.end(_END_TIMEOUT_S)

    def silent_clients(self) -> list[str]:
        """The names of clients that have recorded no call, although they should have: the history proves
        nothing about what they were to do."""
        history = self._settings.recorder.history
        heard = {call.client for call in history.ownership} | {call.client for call in history.appends}
        heard |= {call.client for call in history.reads} | {call.client for call in history.keys}
        heard |= {call.client for call in history.transactions}
        return sorted(self._recording - heard)

    def read_stored(self) -> None:
        """Record what every partition has. Raises TimeoutError if that takes longer than four minutes."""
        for place in self._logs:
            self._read(place, place.topic)
        if self._lists:
            self._read_lists()
        for topic in self._topics:
            if topic.is_changing:
                self._read_changing(self._settings.topic(topic.name))

    def _read_changing(self, topic: str) -> None:
        """Record what partition 0 has, under the label of the topic that has this name now, and that the
        others which had it are gone."""
        present = self._present_label(topic)
        written = {
            call.topic
            for call in self._settings.recorder.history.appends
            if call.topic.startswith(label_of(topic, ""))
        }
        for label in sorted(written - {present}):
            self._settings.recorder.add(DeletedLog(label, 0))
        if present and written:
            self._read(TopicPartition(topic, 0), present)

    def _present_label(self, topic: str) -> str:
        """The label of the topic that has this name now; empty if there is none. Brokers learn of it one
        after the other: this waits until all say the same. Raises TimeoutError."""
        deadline_s = self._settings.recorder.now_s() + _READ_TIMEOUT_S
        with Admin(self._settings.properties()) as admin:
            addresses = [f"{node.host}:{node.port}" for node in admin.describe_cluster().nodes]
        while len(labels := {self._label_at(address, topic) for address in addresses}) > 1:
            if self._settings.recorder.now_s() > deadline_s:
                raise TimeoutError(f"the brokers do not agree about the topic {topic}: {sorted(labels)}")
            time.sleep(_LOOK_S)
        return labels.pop()

    def _label_at(self, address: str, topic: str) -> str:
        """The label of the topic as the broker at this address knows it."""
        with Admin({**self._settings.properties(), "bootstrap.servers": address}) as admin:
            try:
                (found,) = admin.describe_topics([topic])
            except UnknownTopicOrPartitionError:
                return ""
            return label_of(topic, found.id)

    def _read(self, place: TopicPartition, label: str) -> None:
        recorder = self._settings.recorder
        deadline_s = recorder.now_s() + _READ_TIMEOUT_S
        with Consumer({**self._settings.properties(), "auto.offset.reset": "earliest"}) as consumer:
            end = consumer.end_offsets([place])[place]
            records: list[tuple[int, str]] = []
            consumer.add_topic(*place)
            while len(records) < end:
                records += [(each.offset, each.value.decode()) for each in consumer.poll(_POLL_MS)]
                if recorder.now_s() > deadline_s:
                    raise TimeoutError(f"{place} could not be read up to its end, {end}")
        recorder.add(StoredRecords(label, place.partition, tuple(records)))

    def _read_lists(self) -> None:
        """Record what every list has, once all transactions have ended."""
        with Consumer(self._settings.properties()) as consumer:
            ends = consumer.end_offsets(self._lists)
        with closing(FollowedLists(self._settings, self._lists)) as lists:
            try:
                lists.read_to(ends, _READ_TIMEOUT_S)
            except RequestTimeoutError as error:
                raise TimeoutError(f"at the end of the check: {error}") from error
            for place, end in ends.items():
                self._settings.recorder.add(StoredList(list_name(place), lists.elements(place, end)))

    def _clients(self) -> list[CheckClient]:
        clients: list[CheckClient] = []
        if self._logs:
            clients += [Follower(f"follower-{number}", self._settings, self._logs) for number in "12"]
        for recipe in self._recipes:
            clients += recipe.clients(self._settings, self._new_topic)
        return clients
