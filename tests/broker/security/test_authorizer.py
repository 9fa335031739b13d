"""The authorizer decides as Kafka's AclAuthorizer does."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

import pytest

from holdfast_log.broker.security import authorizer as authorizer_module
from holdfast_log.broker.security.authorizer import AclAuthorizer
from holdfast_log.broker.security.settings import super_users_in
from holdfast_log.protocol.acl_bindings import AclBinding, AclEntry, ResourcePattern
from holdfast_log.protocol.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from tests.broker.security.slow_rules import slowly_allows, slowly_allows_some

ALICE, BOB = "User:alice", "User:bob"
HOME, AWAY = "192.0.2.1", "192.0.2.2"
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
REAL_OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]


def binding(
    name: str,
    operation: AclOperation = READ,
    principal: str = ALICE,
    *,
    host: str = "*",
    denies: bool = False,
    is_prefix: bool = False,
    resource: AclResource = TOPIC,
) -> AclBinding:
    pattern = AclPattern.PREFIXED if is_prefix else AclPattern.LITERAL
    permission = AclPermission.DENY if denies else AclPermission.ALLOW
    return AclBinding(
        ResourcePattern(resource, name, pattern), AclEntry(principal, host, operation, permission)
    )


def by_pattern(bindings: Iterable[AclBinding]) -> dict[ResourcePattern, frozenset[AclEntry]]:
    found: dict[ResourcePattern, set[AclEntry]] = defaultdict(set)
    for each in bindings:
        found[each.pattern].add(each.entry)
    return {pattern: frozenset(entries) for pattern, entries in found.items()}


def authorizer_of(
    *bindings: AclBinding, super_users: Iterable[str] = (), allows_unlisted: bool = False
) -> AclAuthorizer:
    made = AclAuthorizer(frozenset(super_users), allows_unlisted=allows_unlisted)
    made.rules_changed(by_pattern(bindings))
    return made


def reads(authorizer: AclAuthorizer, name: str, principal: str = ALICE, host: str = HOME) -> bool:
    return authorizer.allows(principal, host, READ, TOPIC, name)


def test_nothing_is_allowed_without_a_list() -> None:
    assert not reads(AclAuthorizer(), "t")
    assert not AclAuthorizer().allows_some(ALICE, HOME, READ, TOPIC)


def test_a_literal_list_is_about_the_resource_of_its_name_only() -> None:
    authorizer = authorizer_of(binding("t"))

    assert reads(authorizer, "t")
    assert not reads(authorizer, "t2") and not reads(authorizer, "")
    assert not reads(authorizer, "t", BOB)
    assert not authorizer.allows(ALICE, HOME, READ, GROUP, "t")
    assert not authorizer.allows(ALICE, HOME, WRITE, TOPIC, "t")


def test_a_prefix_is_about_all_names_that_begin_with_it() -> None:
    authorizer = authorizer_of(binding("pay", is_prefix=True))

    assert reads(authorizer, "pay") and reads(authorizer, "payments")
    assert not reads(authorizer, "pa") and not reads(authorizer, "repay") and not reads(authorizer, "Pay")


def test_the_name_star_is_about_every_resource_if_it_is_literal() -> None:
    assert reads(authorizer_of(binding("*")), "anything")
    assert not reads(authorizer_of(binding("*", is_prefix=True)), "anything")
    assert reads(authorizer_of(binding("*", is_prefix=True)), "*starred")


def test_the_user_star_is_everybody_and_the_host_star_every_host() -> None:
    authorizer = authorizer_of(binding("t", principal="User:*", host=HOME), binding("u", host=AWAY))

    assert reads(authorizer, "t", BOB) and not reads(authorizer, "t", BOB, AWAY)
    assert reads(authorizer, "u", ALICE, AWAY) and not reads(authorizer, "u", ALICE, HOME)
    assert not reads(authorizer_of(binding("t", principal="Group:*")), "t")


@pytest.mark.parametrize("more", [{"name": "*"}, {"name": "t"}, {"name": "", "is_prefix": True}])
def test_what_denies_outweighs_all_that_allows(more: dict[str, object]) -> None:
    name = str(more.pop("name"))
    denial = binding(name, AclOperation.ALL, "User:*", denies=True, **more)  # type: ignore[arg-type]
    authorizer = authorizer_of(binding("t"), binding("t", is_prefix=True), binding("*"), denial)

    assert not reads(authorizer, "t")


def test_a_denial_concerns_only_those_whom_it_names() -> None:
    authorizer = authorizer_of(
        binding("t", principal="User:*"), binding("t", denies=True, principal=BOB, host=AWAY)
    )

    assert reads(authorizer, "t", BOB, HOME) and reads(authorizer, "t", ALICE, AWAY)
    assert not reads(authorizer, "t", BOB, AWAY)


@pytest.mark.parametrize("operation", REAL_OPERATIONS)
def test_what_is_allowed_implies_describing_as_in_kafka(operation: AclOperation) -> None:
    authorizer = authorizer_of(binding("t", operation))
    implied = {operation}
    if operation in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER):
        implied.add(DESCRIBE)
    if operation is AclOperation.ALTER_CONFIGS:
        implied.add(AclOperation.DESCRIBE_CONFIGS)

    assert {each for each in REAL_OPERATIONS if authorizer.allows(ALICE, HOME, each, TOPIC, "t")} == implied


def test_what_is_denied_implies_nothing() -> None:
    authorizer = authorizer_of(binding("t", AclOperation.ALL), binding("t", READ, denies=True))

    assert authorizer.allows(ALICE, HOME, DESCRIBE, TOPIC, "t")
    assert not reads(authorizer, "t")


def test_a_denied_description_outweighs_an_implied_one() -> None:
    authorizer = authorizer_of(binding("t"), binding("t", DESCRIBE, denies=True))

    assert reads(authorizer, "t") and not authorizer.allows(ALICE, HOME, DESCRIBE, TOPIC, "t")


def test_super_users_may_do_everything() -> None:
    denial = binding("t", AclOperation.ALL, "User:*", denies=True)
    authorizer = authorizer_of(denial, super_users=super_users_in("User:root; User:CN=a, O=b;"))

    assert reads(authorizer, "t", "User:root") and reads(authorizer, "t", "User:CN=a, O=b")
    assert authorizer.allows("User:root", HOME, AclOperation.ALTER, CLUSTER, CLUSTER_NAME)
    assert authorizer.allows_some("User:root", HOME, READ, TOPIC)
    assert not reads(authorizer, "t", "root") and not reads(authorizer, "t")


@pytest.mark.parametrize("text", ["root", "User:a;b", "User:", ":a"])
def test_super_users_have_a_type_and_a_name(text: str) -> None:
    with pytest.raises(ValueError, match="principals such as User:admin"):
        super_users_in(text)


def test_a_resource_without_lists_may_be_open_to_everybody() -> None:
    authorizer = authorizer_of(
        binding("t", principal=BOB), binding("pre", is_prefix=True, principal=BOB), allows_unlisted=True
    )

    assert reads(authorizer, "other")
    assert not reads(authorizer, "t") and not reads(authorizer, "prefixed")
    assert not reads(authorizer_of(binding("*", principal=BOB), allows_unlisted=True), "other")


def test_addresses_are_equal_however_they_are_written() -> None:
    """Java writes ::1 as 0:0:0:0:0:0:0:1, and a dual-stack socket has IPv4 addresses in IPv6."""
    authorizer = authorizer_of(binding("t", host="0:0:0:0:0:0:0:1"), binding("u", host=HOME))

    assert reads(authorizer, "t", host="::1") and not reads(authorizer, "t", host="::2")
    assert reads(authorizer, "u", host=f"::ffff:{HOME}")


def test_entries_that_this_release_does_not_know_allow_and_deny_nothing() -> None:
    pattern = ResourcePattern(TOPIC, "t")
    unknown = AclEntry(ALICE, "*", AclOperation.UNKNOWN, AclPermission.ALLOW)
    neither = AclEntry(ALICE, "*", READ, AclPermission.UNKNOWN)
    authorizer = AclAuthorizer(allows_unlisted=True)
    authorizer.rules_changed({pattern: frozenset({unknown, neither})})

    assert not any(authorizer.allows(ALICE, HOME, each, TOPIC, "t") for each in AclOperation)
    allowed = AclEntry(ALICE, "*", READ, AclPermission.ALLOW)
    authorizer.rules_changed({pattern: frozenset({unknown, neither, allowed})})
    assert reads(authorizer, "t")


def test_a_change_is_in_force_at_once_and_is_announced_after_that() -> None:
    authorizer = authorizer_of(binding("t"), binding("u"))
    seen: list[bool] = []
    authorizer.add_change_listener(lambda: seen.append(reads(authorizer, "t")))
    assert reads(authorizer, "t") and authorizer.allows_some(ALICE, HOME, READ, TOPIC)

    authorizer.rules_changed({ResourcePattern(TOPIC, "t"): frozenset()})
    assert seen == [False] and reads(authorizer, "u")
    authorizer.rules_changed({ResourcePattern(TOPIC, "u"): frozenset()})
    assert not authorizer.allows_some(ALICE, HOME, READ, TOPIC)
    authorizer.rules_changed(by_pattern([binding("t")]))
    assert seen == [False, False, True]


def test_decisions_about_many_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "_CACHED_MAX", 10)
    authorizer = authorizer_of(binding("t", is_prefix=True))

    assert all(reads(authorizer, f"t{number}") for number in range(100))
    assert all(authorizer.allows_some(ALICE, f"192.0.2.{number}", READ, TOPIC) for number in range(100))
    assert reads(authorizer, "t" * 5_000)
    assert 0 < len(authorizer._allowed[TOPIC]) <= 10 and len(authorizer._some) <= 10
    assert all(len(name) <= 1_000 for *_, name in authorizer._allowed[TOPIC])


def test_some_resource_is_allowed_unless_all_that_are_allowed_are_denied() -> None:
    def some(*bindings: AclBinding, allows_unlisted: bool = False) -> bool:
        return authorizer_of(*bindings, allows_unlisted=allows_unlisted).allows_some(ALICE, HOME, READ, TOPIC)

    assert some(binding("t")) and some(binding("t", is_prefix=True)) and some(binding("*"))
    assert not some(binding("t", principal=BOB)) and not some(binding("t", resource=GROUP))
    assert not some(binding("t"), binding("t", denies=True))
    assert some(binding("t"), binding("u"), binding("t", denies=True))
    assert not some(binding("ta", is_prefix=True), binding("t", is_prefix=True, denies=True))
    assert some(binding("t", is_prefix=True), binding("ta", is_prefix=True, denies=True))
    assert some(binding("*"), binding("t", is_prefix=True, denies=True))
    assert not some(binding("*"), binding("*", denies=True))
    assert not some(binding("t", AclOperation.ALTER)) and some(binding("t", AclOperation.ALL))
    assert some(allows_unlisted=True) and some(binding("t", denies=True), allows_unlisted=True)
    assert not some(binding("*", denies=True), allows_unlisted=True)


NAMES = ("*", "a", "ab", "abc", "b", "ba")
PRINCIPALS = (ALICE, BOB, "User:*")
HOSTS = (HOME, AWAY, "*")
OPERATIONS = (
    AclOperation.ALL, READ, WRITE, DESCRIBE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
)  # fmt: skip


def drawn_binding(rng: random.Random) -> AclBinding:
    return binding(
        rng.choice(NAMES),
        rng.choice(OPERATIONS),
        rng.choice(PRINCIPALS),
        host=rng.choice(HOSTS),
        denies=rng.random() < 0.3,
        is_prefix=rng.random() < 0.5,
        resource=rng.choice((TOPIC, GROUP)),
    )


@pytest.mark.parametrize("seed", range(150))
def test_decisions_are_those_of_the_slow_reference_while_lists_change(seed: int) -> None:
    rng = random.Random(seed)
    allows_unlisted = rng.random() < 0.5
    authorizer = AclAuthorizer(allows_unlisted=allows_unlisted)
    bindings: set[AclBinding] = set()
    for _ in range(6):
        before = by_pattern(bindings)
        bindings = {each for each in bindings if rng.random() < 0.7}
        bindings |= {drawn_binding(rng) for _ in range(rng.randrange(6))}
        after = by_pattern(bindings)
        patterns = before.keys() | after.keys()
        authorizer.rules_changed({each: after.get(each, frozenset()) for each in patterns})
        for principal in (ALICE, BOB):
            for host in (HOME, AWAY):
                for operation in OPERATIONS[1:]:
                    asked = principal, host, operation, rng.choice((TOPIC, GROUP))
                    for name in ("a", "ab", "abc", "abcd", "b", "ba", "c", "*"):
                        expected = slowly_allows(bindings, *asked, name, allows_unlisted=allows_unlisted)
                        assert authorizer.allows(*asked, name) is expected, (asked, name, bindings)
                    if not allows_unlisted:
                        some = slowly_allows_some(list(bindings), *asked)
                        assert authorizer.allows_some(*asked) is some, (asked, bindings)
