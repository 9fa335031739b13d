"""What a broker does with the rules of an authorizer: data is denied topic by topic, existence does not leak,
and the audit log names who was denied what."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.auto_creation import AutoCreation
from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.handlers.metadata import AutoCreationSettings, MetadataHandler
from holdfast_log.broker.replication import usual_append
from holdfast_log.broker.requests import audit
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.world import World, fetch_request, fired, produce_request
from tests.models.batches import batch
from tests.models.orders import partition_metadata, update_metadata
from tests.models.quotas import no_mutation_quotas
from tests.models.rules import JudgedContext, Rules

WRITE, READ, DESCRIBE, CREATE = (
    AclOperation.WRITE,
    AclOperation.READ,
    AclOperation.DESCRIBE,
    AclOperation.CREATE,
)
TOPIC, CLUSTER = AclResource.TOPIC, AclResource.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def broker_in(path: Path, rules: Rules | None) -> World:
    """A broker that leads `open` and `closed`, with the rules for its clients."""
    world = World(path, authorizer=rules)
    for topic in ("open", "closed"):
        world.assign(topic)
    return world


def produced(world: World, request: ProduceRequest) -> dict[str, int]:
    """The error codes by topic, for a stranger."""
    response = world.stranger().call(request)
    return {each.name: each.partition_responses[0].error_code for each in response.responses}


def to_both(**data: Any) -> ProduceRequest:
    topics = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=0, records=batch(b"v"), **data)]
        )
        for name in ("closed", "open")
    ]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)


def end_of(world: World, topic: str) -> int:
    return world.replicas.partition(topic, 0).log.log_end_offset


class TestProduce:
    def test_topics_that_a_client_may_write_are_written_and_others_refused(self, tmp_path: Path) -> None:
        world = broker_in(tmp_path, Rules({(WRITE, TOPIC)}, {"closed"}))
        assert produced(world, to_both()) == {"closed": DENIED, "open": ErrorCode.NONE}
        assert (end_of(world, "closed"), end_of(world, "open")) == (0, 1)

    def test_a_conditional_request_is_carried_out_as_a_whole_or_not_at_all(self, tmp_path: Path) -> None:
        world = broker_in(tmp_path, Rules({(WRITE, TOPIC)}, {"closed"}))
        codes = produced(world, to_both(expected_offset=0))
        assert codes == {"closed": DENIED, "open": ErrorCode.OPERATION_NOT_ATTEMPTED}
        assert end_of(world, "open") == 0

    def test_a_topic_that_does_not_exist_is_refused_as_one_that_does(self, tmp_path: Path) -> None:
        world = broker_in(tmp_path, Rules({(WRITE, TOPIC)}))
        assert produced(world, produce_request("none", batch(b"v"))) == {"none": DENIED}
        assert produced(world, produce_request("closed", batch(b"v"))) == {"closed": DENIED}

    def test_a_request_without_an_answer_that_is_denied_closes_its_connection(self, tmp_path: Path) -> None:
        world = broker_in(tmp_path, Rules({(WRITE, TOPIC)}))
        client = world.stranger()
        client.ask(produce_request("closed", batch(b"v"), acks=0))
        assert client.connection.is_closed
        assert end_of(world, "closed") == 0

    def test_brokers_are_not_judged(self, tmp_path: Path) -> None:
        rules = Rules(None)
        world = broker_in(tmp_path, rules)
        response = world.client().call(produce_request("closed", batch(b"v")))
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert rules.asked == []

    def test_the_authorizer_is_told_who_asks_and_from_where(self, tmp_path: Path) -> None:
        rules = Rules({(WRITE, TOPIC)})
        client = broker_in(tmp_path, rules).stranger(host="192.0.2.7")
        client.connection.principal = "User:alice"
        client.call(produce_request("closed", batch(b"v")))
        assert set(rules.asked) == {("User:alice", "192.0.2.7", WRITE, TOPIC, "closed")}


class TestFetch:
    @pytest.mark.parametrize("in_session", [False, True])
    def test_records_of_a_closed_topic_are_not_given(self, tmp_path: Path, in_session: bool) -> None:
        rules = Rules(set())
        world = broker_in(tmp_path, rules)
        produced(world, to_both())
        rules.denied, rules.named = {(READ, TOPIC)}, {"closed"}
        topics = [fetch_request(world.topic_id(name)).topics[0] for name in ("closed", "open")]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
        if in_session:
            request.session_epoch = 0
        response = world.stranger().call(request)
        found = {each.topic_id: each.partitions[0] for each in response.responses}
        closed, open_ = found[world.topic_id("closed")], found[world.topic_id("open")]
        assert (closed.error_code, closed.records, closed.high_watermark) == (DENIED, b"", -1)
        assert open_.error_code == ErrorCode.NONE
        assert open_.records

    def test_a_fetch_of_one_closed_topic_is_refused(self, tmp_path: Path) -> None:
        world = broker_in(tmp_path, Rules({(READ, TOPIC)}))
        (topic,) = world.stranger().call(fetch_request(world.topic_id("closed"), max_wait_ms=500)).responses
        assert topic.partitions[0].error_code == DENIED

    def test_names_in_old_versions_do_not_tell_what_exists(self, tmp_path: Path) -> None:
        world = broker_in(tmp_path, Rules({(READ, TOPIC)}))
        client = world.stranger()
        codes = []
        for name in ("closed", "none"):
            request = fetch_request(uuid.UUID(int=0))
            request.topics[0].topic = name
            (topic,) = client.call(request, 12).responses
            codes.append((topic.partitions[0].error_code, topic.partitions[0].error_message))
        assert codes[0] == codes[1]
        assert codes[0][0] == DENIED


class TestAudit:
    def test_one_line_for_each_connection_operation_and_resource(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, audit.__name__)
        world = broker_in(tmp_path, Rules({(WRITE, TOPIC)}))
        client = world.stranger("app", host="192.0.2.7")
        client.connection.principal = "User:alice"
        for topic in ("closed", "closed", "open"):
            client.call(produce_request(topic, batch(b"v")))
        assert [record.getMessage() for record in caplog.records] == [
            f"Denied WRITE of the topic {name!r} to User:alice, client 'app', at 192.0.2.7"
            for name in ("closed", "open")
        ]

    def test_lines_are_bounded_whatever_clients_do(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, audit.__name__)
        world = broker_in(tmp_path, Rules({(WRITE, TOPIC)}))
        for number in range(3 * audit.DENIED_LINES_MAX):
            client = world.stranger()
            client.call(produce_request(f"topic-{number}\n", batch(b"v")))
            client.connection.close("it has gone")
        assert audit.DENIED_LINES_MAX <= len(caplog.records) <= audit.DENIED_LINES_MAX + 1
        assert all("\n" not in record.getMessage() for record in caplog.records)
        world.clock.advance(audit.DENIED_INTERVAL_S)
        assert "denied operations: 99 more" in caplog.records[-1].getMessage()
        produced(world, produce_request("closed", batch(b"v")))
        assert "'closed'" in caplog.records[-1].getMessage()

    def test_one_connection_is_remembered_within_bounds(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, audit.__name__)
        world = broker_in(tmp_path, Rules({(WRITE, TOPIC)}))
        client = world.stranger()
        for number in range(2 * audit.DENIED_PER_CONNECTION_MAX):
            client.call(produce_request(f"topic-{number}", batch(b"v")))
            world.clock.advance(1)
        lines = [each for each in caplog.records if "Denied" in each.getMessage()]
        assert len(lines) == audit.DENIED_PER_CONNECTION_MAX


class Cluster:
    """A broker that knows the topics `open` and `closed`, and answers Metadata."""

    def __init__(self) -> None:
        self.metadata = MetadataCache()
        self.made: list[tuple[list[str], str | None]] = []
        for number, name in enumerate(("open", "closed")):
            self.metadata.update(update_metadata(name, uuid.UUID(int=number + 1), [partition_metadata()]))
        self.handler = MetadataHandler(
            self.metadata,
            BrokerIdentity(1, "cluster", "PLAINTEXT"),
            cast(AutoCreation, SimpleNamespace(create=self._create)),
            AutoCreationSettings(True),
            FirstUpdate(self.metadata, Clock()),
            no_mutation_quotas(),
            LongAnswers(Clock()),
        )

    def _create(self, names: list[str], on_behalf_of: str | None) -> Deferred[dict[str, ErrorCode]]:
        self.made.append((names, on_behalf_of))
        return succeed(dict.fromkeys(names, ErrorCode.NONE))

    def ask(self, rules: Rules, *names: str, **wanted: Any) -> MetadataResponse:
        topics = [MetadataRequestTopic(name=name) for name in names] if names else None
        request = MetadataRequest(topics=topics, **wanted)
        answer = self.handler.handle(JudgedContext(12, rules), request)
        assert isinstance(answer, Deferred)
        return fired(answer)

    def codes(self, rules: Rules, *names: str, **wanted: Any) -> dict[str | None, int]:
        return {each.name: each.error_code for each in self.ask(rules, *names, **wanted).topics}


class TestMetadata:
    def test_a_list_of_all_topics_has_those_that_the_client_may_describe(self) -> None:
        rules = Rules({(DESCRIBE, TOPIC)}, {"closed"})
        assert Cluster().codes(rules) == {"open": ErrorCode.NONE}

    def test_a_named_topic_is_refused_whether_it_exists_or_not(self) -> None:
        cluster = Cluster()
        response = cluster.ask(Rules({(DESCRIBE, TOPIC)}), "closed", "none")
        closed, none = response.topics
        assert (closed.name, none.name) == ("closed", "none")
        closed.name = none.name
        assert closed == none
        assert closed.error_code == DENIED
        assert cluster.made == []

    def test_a_topic_named_by_its_id_is_refused_without_its_name(self) -> None:
        cluster = Cluster()
        request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=uuid.UUID(int=2), name=None)])
        answer = cluster.handler.handle(JudgedContext(12, Rules({(DESCRIBE, TOPIC)})), request)
        (topic,) = fired(cast("Deferred[MetadataResponse]", answer)).topics
        assert (topic.error_code, topic.name, topic.topic_id) == (DENIED, None, uuid.UUID(int=2))

    @pytest.mark.parametrize("denied", [CLUSTER, TOPIC])
    def test_one_of_two_rights_is_enough_to_create_a_missing_topic(self, denied: AclResource) -> None:
        cluster = Cluster()
        assert cluster.codes(Rules({(CREATE, denied)}), "new") == {"new": ErrorCode.LEADER_NOT_AVAILABLE}
        assert cluster.made == [(["new"], "this broker")]

    def test_without_both_it_is_refused_and_nothing_is_created(self) -> None:
        cluster = Cluster()
        rules = Rules({(CREATE, CLUSTER), (CREATE, TOPIC)})
        assert cluster.codes(rules, "new", "open") == {"new": DENIED, "open": ErrorCode.NONE}
        assert cluster.made == []

    def test_the_operations_of_the_client_are_listed(self) -> None:
        rules = Rules({(WRITE, TOPIC), (AclOperation.ALTER, TOPIC)})
        (topic,) = Cluster().ask(rules, "open", include_topic_authorized_operations=True).topics
        bits = topic.topic_authorized_operations
        assert not bits & 1 << WRITE
        assert not bits & 1 << AclOperation.ALTER
        assert bits & 1 << READ
        assert bits & 1 << DESCRIBE


def test_the_controller_names_the_client_for_whom_a_broker_creates_a_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent: list[CreateTopicsRequest] = []

    def ask(request: CreateTopicsRequest) -> Deferred[CreateTopicsResponse]:
        sent.append(request)
        return Deferred()

    AutoCreation(ask, cast(Any, None)).create(["t"], "User:alice, client 'app', at 192.0.2.7")
    caplog.set_level(logging.INFO, audit.__name__)
    audit.log_change(RequestContext(7, "", None), "Created topic t", on_behalf_of=sent[0].on_behalf_of)
    (record,) = caplog.records
    assert record.getMessage() == "Created topic t, by User:alice, client 'app', at 192.0.2.7"


def test_a_client_cannot_have_the_audit_log_name_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, audit.__name__)
    connection = World(tmp_path).stranger("app").connection
    context = RequestContext(7, "app", connection)
    audit.log_change(context, "Created topic t", on_behalf_of="User:alice\nfake line")
    assert "alice" not in caplog.records[0].getMessage()
    connection.is_broker = True
    audit.log_change(context, "Created topic t", on_behalf_of="User:alice\nfake line")
    assert caplog.records[1].getMessage() == "Created topic t, by User:alice?fake line"


class TestShortcut:
    """The compiled way of a produce request is for what the client may write, and for nothing else."""

    def usual(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """Whether each request was usual, as it is carried out."""
        if usual_append._compiled is None:
            pytest.skip("the extensions were not compiled")
        taken: list[bool] = []
        append = usual_append.UsualAppends.append

        def counted(self: usual_append.UsualAppends, *arguments: Any) -> Any:
            answer = append(self, *arguments)
            taken.append(answer is not None)
            return answer

        monkeypatch.setattr(usual_append.UsualAppends, "append", counted)
        return taken

    def test_it_is_taken_by_what_is_allowed_and_by_nothing_that_is_denied(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken = self.usual(monkeypatch)
        rules = Rules({(WRITE, TOPIC)}, {"closed"})
        world = broker_in(tmp_path, rules)
        client = world.stranger()
        versions = range(3, ProduceRequest.api.max_version + 1)
        for version in versions:
            for topic in ("open", "closed"):
                request = produce_request(topic, batch(b"v"), acks=1)
                (answer,) = client.call(request, version).responses
                is_open = topic == "open"
                assert answer.partition_responses[0].error_code == (ErrorCode.NONE if is_open else DENIED)
        assert end_of(world, "closed") == 0
        assert end_of(world, "open") == len(versions)
        assert taken.count(True) == len(versions) - 1, "the first batch of a leader epoch is not usual"

    def test_several_topics_take_it_if_the_client_may_write_to_all_of_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken = self.usual(monkeypatch)
        rules = Rules(set(), {"closed"})
        world = broker_in(tmp_path, rules)
        for _ in range(2):
            assert produced(world, to_both()) == {"closed": ErrorCode.NONE, "open": ErrorCode.NONE}
        rules.denied = {(WRITE, TOPIC)}
        for _ in range(2):
            assert produced(world, to_both()) == {"closed": DENIED, "open": ErrorCode.NONE}
        assert taken == [False, True, False, False], "the first batch of a leader epoch is not usual"
        assert (end_of(world, "closed"), end_of(world, "open")) == (2, 4)

    def test_brokers_take_it_for_all_topics(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        taken = self.usual(monkeypatch)
        broker = broker_in(tmp_path, Rules({(WRITE, TOPIC)}, {"closed"})).client()
        for _ in range(2):
            broker.call(produce_request("closed", batch(b"v"), acks=1))
        assert taken[-1]

    def test_a_right_that_has_ended_is_asked_for_again(self, tmp_path: Path) -> None:
        rules = Rules(set())
        world = broker_in(tmp_path, rules)
        client = world.stranger()
        for code in (ErrorCode.NONE, DENIED, ErrorCode.NONE):
            rules.denied = {(WRITE, TOPIC)} if code is DENIED else set()
            (answer,) = client.call(produce_request("open", batch(b"v"), acks=1)).responses
            assert answer.partition_responses[0].error_code == code
        assert end_of(world, "open") == 2
