"""Clients of lists, which are partitions as readers of committed records see them: transactions that read
lists and append to them, and clients that only read.

Two clients share the transactional id of a group of lists. Who begins with it fences the other, so the
transactions of a group take place one after the other, although neither knows of the other. Each client
begins with a transaction that only appends, to all lists of the group: what is before its elements, it can
read, whatever an outdated leader believes to be the end of a list.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from holdfast_log.checker.calls import ListRead, Outcome, TransactionCall
from holdfast_log.checker.clients.crew import CheckSettings, new_value
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import CommitUnknownError, RequestTimeoutError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.clients.transactions.transaction import ProducerTransaction
from holdfast_log.protocol.topic_partition import TopicPartition

_POLL_MS = 100
_READ_TIMEOUT_S = 6.0
_SHOWN_OF_A_LIST = 5
_ELEMENTS_MAX = 3
_ABORT_SHARE = 0.2
_FLUSH_MS = 1_000
_AWAY_S = (0.2, 3.0)
_CLOSE_MS = 3_000
_TRANSACTION_TIMEOUT_MS = 20_000


def list_name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"


class FollowedLists:
    """The elements of lists, with their offsets, up to where they have been read."""

    def __init__(self, settings: CheckSettings, places: Sequence[TopicPartition]) -> None:
        self._recorder = settings.recorder
        self._places = places
        self._elements: dict[TopicPartition, list[tuple[int, str]]] = {place: [] for place in places}
        self._consumer = Consumer({**settings.properties(), "isolation.level": "read_committed"})
        for place in places:
            self._consumer.add_topic(*place)
            self._consumer.seek(place, 0)

    def stable_ends(self) -> Mapping[TopicPartition, int]:
        """The last stable offsets: no transaction is there in part."""
        return self._consumer.end_offsets(self._places)

    def read_to(self, ends: Mapping[TopicPartition, int], timeout_s: float = _READ_TIMEOUT_S) -> None:
        """Read everything before these offsets. Raises RequestTimeoutError if that takes too long."""
        deadline_s = self._recorder.now_s() + timeout_s
        while late := [place for place, end in ends.items() if self._consumer.position(place) < end]:
            for record in self._consumer.poll(_POLL_MS):
                place = TopicPartition(record.topic, record.partition)
                self._elements[place].append((record.offset, record.value.decode()))
            if self._recorder.now_s() > deadline_s:
                raise RequestTimeoutError(f"{late[0]} was not read up to offset {ends[late[0]]} in time")

    def elements(self, place: TopicPartition, end: int) -> tuple[str, ...]:
        """What a list has before an offset."""
        return tuple(element for offset, element in self._elements[place] if offset < end)

    def read(self, place: TopicPartition, end: int) -> ListRead:
        """The same, as a transaction records it."""
        elements = self.elements(place, end)
        return ListRead(list_name(place), len(elements), elements[-_SHOWN_OF_A_LIST:])

    def close(self) -> None:
        self._consumer.close()


class ListReader:
    """Reads lists again and again, each up to its last stable offset."""

    def __init__(self, name: str, settings: CheckSettings, places: Sequence[TopicPartition]) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._lists = FollowedLists(settings, places)

    def step(self) -> None:
        asked_s = self._recorder.now_s()
        ends = self._lists.stable_ends()
        self._lists.read_to(ends)
        answered_s = self._recorder.now_s()
        for place, end in ends.items():
            reads = (self._lists.read(place, end),)
            self._recorder.add(TransactionCall(self.name, asked_s, answered_s, Outcome.DONE, reads))

    def close(self) -> None:
        self._lists.close()


class _GivenUp(Exception):
    """The client means to abort."""


class ListWriter:
    """Makes transactions by a transactional id until it is fenced, and takes the id over again later."""

    def __init__(
        self, name: str, settings: CheckSettings, transactional_id: str, places: Sequence[TopicPartition]
    ) -> None:
        self.name = name
        self._settings = settings
        self._recorder = settings.recorder
        self._transactional_id = transactional_id
        self._places = places
        self._lists = FollowedLists(settings, places)
        self._producer: Producer | None = None
        self._ends: dict[TopicPartition, int] = {}
        """The ends of what this client has written to each list since it took the id over."""
        self._back_at_s = 0.0

    def step(self) -> None:
        if self._producer is None:
            if self._recorder.now_s() >= self._back_at_s:
                self._take_over()
            return
        try:
            self._transact(self._producer)
        except RequestTimeoutError:
            raise  # The producer goes on.
        except Exception:
            self._leave()
            raise

    def close(self) -> None:
        self._leave()
        self._lists.close()

    def _take_over(self) -> None:
        properties = {
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
        }
        producer = Producer(self._settings.producer_properties() | properties)
        try:
            producer.init_transactions()
        except Exception:
            producer.close(0)
            raise
        self._producer = producer
        self._ends.clear()

    def _leave(self) -> None:
        producer, self._producer = self._producer, None
        self._back_at_s = self._recorder.now_s() + random.uniform(*_AWAY_S)
        if producer is not None:
            producer.close(_CLOSE_MS)

    def _transact(self, producer: Producer) -> None:
        places = random.sample(self._places, random.randint(1, len(self._places)))
        asked_s = self._recorder.now_s()
        reads: tuple[ListRead, ...] = ()
        if len(self._ends) < len(self._places):
            places = list(self._places)
        else:
            self._lists.read_to(self._ends)
            read = random.sample(self._places, random.randint(1, len(self._places)))
            reads = tuple(self._lists.read(place, self._ends[place]) for place in read)
        appends = [
            (place, new_value(self.name)) for place in places for _ in range(random.randint(1, _ELEMENTS_MAX))
        ]
        random.shuffle(appends)
        transaction, outcome = producer.transaction(), Outcome.REFUSED
        try:
            outcome = self._write(producer, transaction, appends)
        finally:
            named = tuple((list_name(place), element) for place, element in appends)
            answered_s = self._recorder.now_s()
            self._recorder.add(TransactionCall(self.name, asked_s, answered_s, outcome, reads, named))

    def _write(
        self,
        producer: Producer,
        transaction: ProducerTransaction,
        appends: Sequence[tuple[TopicPartition, str]],
    ) -> Outcome:
        """Append, and commit or abort. Raises what the producer raises if nothing of this counts."""
        answers: list[tuple[TopicPartition, SendResponse]] = []
        try:
            with transaction:
                for place, element in appends:
                    message = Message(place.topic, partition=place.partition, value=element)
                    answers.append((place, transaction.send(message)))
                if random.random() < _ABORT_SHARE:
                    producer.flush(_FLUSH_MS)
                    raise _GivenUp
        except _GivenUp:
            return Outcome.REFUSED
        except (CommitUnknownError, RequestTimeoutError):
            return Outcome.UNKNOWN
        finally:
            for place, answer in answers:
                if answer.offset is not None:
                    self._ends[place] = max(self._ends.get(place, 0), answer.offset + 1)
        return Outcome.DONE
