"""Access control lists are described, created and deleted in ZooKeeper as Kafka does it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.handlers.create_acls import CreateAclsHandler
from holdfast_log.broker.handlers.delete_acls import DeleteAclsHandler
from holdfast_log.broker.handlers.describe_acls import DescribeAclsHandler
from holdfast_log.broker.requests.answers import AnswerLimits, LongAnswers
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.security.administration import BROAD_FILTERS_MAX, AclAdministration
from holdfast_log.broker.security.authorizer import AclAuthorizer
from holdfast_log.coordinator.cluster.acls import UNREADABLE, AccessControlLists
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.znodes.acls import acl_path, decode_acls, encode_acls
from holdfast_log.protocol.acl_bindings import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from holdfast_log.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from holdfast_log.protocol.messages.describe_acls import DescribeAclsRequest
from tests.broker.security.test_authorizer import ALICE, BOB, HOME, READ, TOPIC, WRITE, binding
from tests.models.instant_zookeeper import InstantZooKeeper

T = binding("t")
PREFIXED = binding("t", WRITE, BOB, is_prefix=True)
EVERYTHING = AclFilter()


class Acls:
    """A broker's handlers of access control lists, on ZooKeeper."""

    def __init__(
        self,
        zookeeper: InstantZooKeeper | None = None,
        *,
        entries_max: int = 1_000,
        is_enabled: bool = True,
        answer_bytes_max: int = 1 << 24,
    ) -> None:
        self.zookeeper = zookeeper or InstantZooKeeper()
        clock = Clock()
        self.lists = AccessControlLists(self.zookeeper, clock)
        self.authorizer = AclAuthorizer()
        self.lists.add_listener(self.authorizer.rules_changed)
        administration = AclAdministration(self.lists if is_enabled else None, entries_max)
        answers = LongAnswers(clock, AnswerLimits(answer_bytes_max))
        self._dispatcher = Dispatcher(RepeatedLog(clock))
        self._dispatcher.add(
            [
                CreateAclsHandler(administration, answers, ClusterRights()),
                DescribeAclsHandler(administration, answers),
                DeleteAclsHandler(administration, answers, ClusterRights()),
            ]
        )
        self._clock = clock
        if is_enabled:
            self.lists.load()
            self.lists.registered(self.zookeeper.session, 1)

    def ask(self, request: Request[Any]) -> Any:
        answers: list[Any] = []
        self._dispatcher.call_local(request).addCallback(answers.append)
        for _ in range(1_000):
            if answers:
                break
            self._clock.advance(0)
        (answer,) = answers
        return answer

    def create(self, *bindings: AclBinding) -> list[int]:
        """The error code of each."""
        creations = [
            AclCreation(
                resource_type=each.pattern.resource,
                resource_name=each.pattern.name,
                resource_pattern_type=each.pattern.pattern,
                principal=each.entry.principal,
                host=each.entry.host,
                operation=each.entry.operation,
                permission_type=each.entry.permission,
            )
            for each in bindings
        ]
        return [row.error_code for row in self.ask(CreateAclsRequest(creations=creations)).results]

    def describe(self, wanted: AclFilter = EVERYTHING) -> list[AclBinding]:
        answer = self.ask(
            DescribeAclsRequest(
                resource_type_filter=wanted.resource,
                resource_name_filter=wanted.name,
                pattern_type_filter=wanted.pattern,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            )
        )
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        return [
            AclBinding(
                ResourcePattern(
                    AclResource(row.resource_type), row.resource_name, AclPattern(row.pattern_type)
                ),
                AclEntry(
                    acl.principal, acl.host, AclOperation(acl.operation), AclPermission(acl.permission_type)
                ),
            )
            for row in answer.resources
            for acl in row.acls
        ]

    def delete(self, *filters: AclFilter) -> Any:
        asked = [
            DeleteAclsFilter(
                resource_type_filter=wanted.resource,
                resource_name_filter=wanted.name,
                pattern_type_filter=wanted.pattern,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            )
            for wanted in filters
        ]
        return self.ask(DeleteAclsRequest(filters=asked)).filter_results

    def deleted(self, *filters: AclFilter) -> list[int]:
        """How many entries each filter has deleted."""
        results = self.delete(*filters)
        assert all(row.error_code == 0 for row in results)
        assert all(each.error_code == 0 for row in results for each in row.matching_acls)
        return [len(row.matching_acls) for row in results]

    def notifications(self) -> list[bytes]:
        return [data for path, (data, _) in sorted(self.zookeeper.znodes.items()) if "/acl_changes_" in path]

    def in_zookeeper(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        return decode_acls("", self.zookeeper.znodes[acl_path(pattern)][0])


@pytest.fixture
def acls() -> Acls:
    return Acls()


def entry_of(each: AclBinding, **changes: Any) -> AclBinding:
    return replace(each, entry=replace(each.entry, **changes))


def pattern_of(each: AclBinding, **changes: Any) -> AclBinding:
    return replace(each, pattern=replace(each.pattern, **changes))


def test_entries_are_stored_announced_and_in_force(acls: Acls) -> None:
    assert acls.create(T, PREFIXED) == [0, 0]

    assert acls.in_zookeeper(T.pattern) == {T.entry}
    assert acls.notifications() == [
        b"TOPIC:t",
        b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}',
    ]
    assert acls.describe() == [T, PREFIXED]
    assert acls.authorizer.allows(ALICE, HOME, READ, TOPIC, "t")
    assert acls.authorizer.allows(BOB, HOME, WRITE, TOPIC, "tx")


def test_entries_join_those_that_are_there(acls: Acls) -> None:
    acls.create(T)
    more = entry_of(T, principal=BOB)
    assert acls.create(T, more, more) == [0, 0, 0]
    assert acls.in_zookeeper(T.pattern) == {T.entry, more.entry}
    assert len(acls.notifications()) == 2
    assert acls.create(T) == [0]
    assert len(acls.notifications()) == 2, "nothing has changed"


def test_the_last_entry_takes_the_znode_with_it(acls: Acls) -> None:
    acls.create(T, PREFIXED)
    assert acls.deleted(AclFilter.of(T)) == [1]
    assert acl_path(T.pattern) not in acls.zookeeper.znodes
    assert acls.describe() == [PREFIXED]
    assert not acls.authorizer.allows(ALICE, HOME, READ, TOPIC, "t")
    assert acls.deleted(AclFilter.of(T)) == [0]


@pytest.mark.parametrize(
    "wrong",
    [
        pattern_of(T, resource=AclResource.UNKNOWN),
        pattern_of(T, resource=AclResource.ANY),
        pattern_of(T, pattern=AclPattern.MATCH),
        pattern_of(T, pattern=AclPattern.ANY),
        pattern_of(T, pattern=AclPattern.UNKNOWN),
        pattern_of(T, name=""),
        pattern_of(T, name="a/b"),
        pattern_of(T, name=".."),
        pattern_of(T, name="a\n"),
        pattern_of(T, name="x" * 1_001),
        pattern_of(T, resource=AclResource.CLUSTER),
        entry_of(T, principal="alice"),
        entry_of(T, principal="User:"),
        entry_of(T, principal="User:" + "x" * 1_000),
        entry_of(T, host=""),
        entry_of(T, host="x" * 1_001),
        entry_of(T, operation=AclOperation.ANY),
        entry_of(T, operation=AclOperation.UNKNOWN),
        entry_of(T, permission=AclPermission.ANY),
        entry_of(T, permission=AclPermission.UNKNOWN),
    ],
    ids=str,
)
def test_an_entry_that_cannot_be_is_refused_and_its_neighbour_is_not(acls: Acls, wrong: AclBinding) -> None:
    assert acls.create(wrong, T) == [ErrorCode.INVALID_REQUEST, 0]
    assert acls.describe() == [T]


def test_codes_that_do_not_exist_are_refused(acls: Acls) -> None:
    creation = AclCreation(
        resource_type=99, resource_name="t", resource_pattern_type=98, principal=ALICE, host="*",
        operation=97, permission_type=96,
    )  # fmt: skip
    (row,) = acls.ask(CreateAclsRequest(creations=[creation])).results
    assert row.error_code == ErrorCode.INVALID_REQUEST
    described = acls.ask(
        DescribeAclsRequest(
            resource_type_filter=99, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        )
    )  # fmt: skip
    assert described.error_code == ErrorCode.INVALID_REQUEST
    assert "resource type" in described.error_message
    (row,) = acls.delete(AclFilter(operation=AclOperation.UNKNOWN))
    assert row.error_code == ErrorCode.INVALID_REQUEST


FILTERED: list[tuple[AclFilter, Iterable[AclBinding]]] = [
    (EVERYTHING, [T, PREFIXED]),
    (AclFilter(name="t"), [T, PREFIXED]),
    (AclFilter(name="tx"), []),
    (AclFilter(name="tx", pattern=AclPattern.MATCH), [PREFIXED]),
    (AclFilter(pattern=AclPattern.LITERAL), [T]),
    (AclFilter(name="t", pattern=AclPattern.PREFIXED), [PREFIXED]),
    (AclFilter(resource=AclResource.GROUP), []),
    (AclFilter(principal=BOB), [PREFIXED]),
    (AclFilter(host=HOME), []),
    (AclFilter(host="*"), [T, PREFIXED]),
    (AclFilter(operation=READ), [T]),
    (AclFilter(operation=AclOperation.ALL), []),
    (AclFilter(permission=AclPermission.DENY), []),
]


@pytest.mark.parametrize(("wanted", "expected"), FILTERED)
def test_filters_select_as_in_kafka(acls: Acls, wanted: AclFilter, expected: list[AclBinding]) -> None:
    acls.create(T, PREFIXED)
    assert acls.describe(wanted) == expected
    assert acls.deleted(wanted) == [len(expected)]
    assert set(acls.describe()) == {T, PREFIXED} - set(expected)


def test_a_match_finds_the_lists_of_the_name_star(acls: Acls) -> None:
    star = binding("*")
    acls.create(star, T)
    assert acls.describe(AclFilter(name="anything", pattern=AclPattern.MATCH)) == [star]
    assert acls.describe(AclFilter(name="anything")) == []


def test_of_several_filters_the_first_reports_what_both_select(acls: Acls) -> None:
    acls.create(T, PREFIXED)
    assert acls.deleted(AclFilter(principal=ALICE), AclFilter(name="nothing"), EVERYTHING) == [1, 0, 1]


def test_entries_that_another_broker_has_just_created_are_deleted() -> None:
    zookeeper = InstantZooKeeper()
    one, two = Acls(zookeeper), Acls(zookeeper)
    one.create(T)
    two.lists._acls.clear()  # As if the notification had not arrived yet.
    assert two.deleted(AclFilter.of(T)) == [1]
    assert one.describe() == []


def test_a_rule_made_through_one_broker_is_in_force_at_another() -> None:
    zookeeper = InstantZooKeeper()
    one, two = Acls(zookeeper), Acls(zookeeper)
    one.create(T)
    assert two.authorizer.allows(ALICE, HOME, READ, TOPIC, "t")
    two.delete(EVERYTHING)
    assert not one.authorizer.allows(ALICE, HOME, READ, TOPIC, "t")


def test_a_lost_answer_to_a_write_is_no_error(acls: Acls) -> None:
    acls.zookeeper.loses_answer = True
    assert acls.create(T) == [0]
    assert acls.describe() == [T] and len(acls.notifications()) == 1
    acls.zookeeper.loses_answer = True
    assert acls.deleted(EVERYTHING) == [1]
    assert acls.describe() == []


def test_folders_that_somebody_has_removed_are_made_again(acls: Acls) -> None:
    del acls.zookeeper.znodes["/kafka-acl/Topic"]
    del acls.zookeeper.znodes["/kafka-acl-changes"]
    assert acls.create(T) == [0]
    assert acls.describe() == [T]


@pytest.mark.parametrize("data", [b"{", b'{"version":9,"acls":[]}'])
def test_a_list_that_cannot_be_read_denies_everything_and_is_not_overwritten(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    zookeeper = InstantZooKeeper()
    acls = Acls(zookeeper)
    acls.create(binding("*", AclOperation.ALL))
    zookeeper.znodes[acl_path(T.pattern)] = (data, 0)
    again = Acls(zookeeper)
    assert "until the znode is repaired or removed" in caplog.text
    assert not again.authorizer.allows(ALICE, HOME, READ, TOPIC, "t")
    assert again.authorizer.allows(ALICE, HOME, READ, TOPIC, "u")
    assert [each.entry for each in again.describe(AclFilter(name="t"))] == list(UNREADABLE)

    assert again.create(T, binding("u")) == [ErrorCode.UNKNOWN_SERVER_ERROR, 0]
    (row,) = again.delete(AclFilter(name="t"))
    assert [each.error_code for each in row.matching_acls] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert zookeeper.znodes[acl_path(T.pattern)][0] == data

    del zookeeper.znodes[acl_path(T.pattern)]
    again.zookeeper.znodes[acl_path(T.pattern)] = (encode_acls({T.entry}), 0)
    assert again.create(entry_of(T, principal=BOB)) == [0]
    assert again.authorizer.allows(ALICE, HOME, READ, TOPIC, "t")


def test_entries_of_newer_brokers_are_kept_and_not_described(acls: Acls) -> None:
    known = {"principal": ALICE, "permissionType": "Allow", "operation": "Read", "host": "*"}
    data = json.dumps({"version": 1, "acls": [known, {**known, "operation": "Fly"}]}).encode()
    acls.zookeeper.znodes[acl_path(T.pattern)] = (data, 0)
    acls = Acls(acls.zookeeper)
    assert acls.describe() == [T]
    assert acls.deleted(EVERYTHING) == [1]
    assert len(acls.in_zookeeper(T.pattern)) == 1 and acls.describe() == []


def test_there_is_a_largest_number_of_entries() -> None:
    acls = Acls(entries_max=2)
    others = [binding(name) for name in "abc"]
    assert acls.create(*others) == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert acls.create(others[0], others[2]) == [0, ErrorCode.POLICY_VIOLATION]
    assert acls.deleted(AclFilter.of(others[0])) == [1]
    assert acls.create(others[2]) == [0]


def test_a_list_of_many_entries_is_described_in_several_rows(acls: Acls) -> None:
    many = [entry_of(T, principal=f"User:{number:03}") for number in range(120)]
    assert acls.create(*many) == [0] * 120
    assert acls.describe() == many
    answer = acls.ask(
        DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        )
    )  # fmt: skip
    assert [len(row.acls) for row in answer.resources] == [50, 50, 20]


def test_an_answer_that_would_be_too_long_is_refused_before_anything_is_deleted() -> None:
    acls = Acls(answer_bytes_max=20_000)
    many = [binding(f"{'x' * 200}{number}") for number in range(100)]
    assert acls.create(*many) == [0] * 100
    (row,) = acls.delete(EVERYTHING)
    assert row.error_code == ErrorCode.POLICY_VIOLATION
    assert acls.deleted(AclFilter(name=many[0].pattern.name)) == [1]
    assert len(acls.lists.present) == 99


def test_broad_filters_are_bounded(acls: Acls) -> None:
    acls.create(T)
    broad = [AclFilter(principal=f"User:{number}") for number in range(BROAD_FILTERS_MAX + 1)]
    assert {row.error_code for row in acls.delete(*broad)} == {ErrorCode.INVALID_REQUEST}
    assert acls.deleted(*broad[1:]) == [0] * BROAD_FILTERS_MAX
    exact = [AclFilter(TOPIC, str(number), AclPattern.LITERAL) for number in range(500)]
    assert sum(acls.deleted(*exact, AclFilter.of(T))) == 1


def test_without_an_authorizer_every_request_is_refused() -> None:
    acls = Acls(is_enabled=False)
    assert acls.create(T) == [ErrorCode.SECURITY_DISABLED]
    assert [row.error_code for row in acls.delete(EVERYTHING)] == [ErrorCode.SECURITY_DISABLED]
    described = acls.ask(
        DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
            host_filter=None, operation=1, permission_type=1,
        )
    )  # fmt: skip
    assert described.error_code == ErrorCode.SECURITY_DISABLED
    assert "authorizer.class.name" in described.error_message
    assert not [path for path in acls.zookeeper.znodes if "acl" in path]


def test_a_change_is_logged_with_whoever_made_it(acls: Acls, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    acls.create(T)
    acls.deleted(EVERYTHING)
    assert "Created the access control entry 'TOPIC LITERAL:t allows User:alice READ from host *', by" in (
        caplog.text
    )
    assert "Deleted the access control entry 'TOPIC LITERAL:t allows User:alice READ from host *', by" in (
        caplog.text
    )
