"""The pages of access control lists and of users: what they show, and what they change once confirmed."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any, Self

import pytest

from holdfast_log.clients.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    ClientQuotaEntity,
    NewScramCredential,
    OldScramCredential,
    ResourcePattern,
)
from holdfast_log.console.options import ConsoleOptions
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.console.world import ConsoleWorld, token_in, words

CHANGES = ConsoleOptions(allow_changes=True)
HOSTILE = "User:<img src=x onerror=alert(1)>\u202e"


def entry(
    principal: str,
    operation: AclOperation = AclOperation.READ,
    name: str = "orders",
    pattern: AclPattern = AclPattern.LITERAL,
    permission: AclPermission = AclPermission.ALLOW,
    kind: AclResource = AclResource.TOPIC,
    host: str = "*",
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name, pattern), AclEntry(principal, host, operation, permission))


class Rights:
    """What a cluster knows of rights and users, for a fake cluster that knows nothing of them."""

    def __init__(self) -> None:
        self.bindings: list[AclBinding] = [
            entry("User:anna", AclOperation.WRITE),
            entry("User:bert", name="ord", pattern=AclPattern.PREFIXED),
            entry("User:*", name="payments", permission=AclPermission.DENY, host="192.0.2.7"),
            entry("User:ops", AclOperation.ALTER, "kafka-cluster", kind=AclResource.CLUSTER),
        ]
        self.users = {"anna": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}, "bert": {"SCRAM-SHA-512": 4096}}
        self.quotas = {ClientQuotaEntity.of(user="anna"): {"producer_byte_rate": 1048576.0}}
        self.refusal: ErrorCode | None = None
        self.passwords: list[str] = []


class RightsAdmin:
    """An admin client of both."""

    def __init__(self, rights: Rights, other: Any) -> None:
        self._rights = rights
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._other.close()

    def _admit(self) -> None:
        if self._rights.refusal is not None:
            raise BrokerError(self._rights.refusal)

    def describe_acls(self, wanted: AclFilter) -> list[AclBinding]:
        self._admit()
        return [
            each
            for each in self._rights.bindings
            if wanted.selects(each.pattern) and wanted.selects_entry(each.entry)
        ]

    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        self._admit()
        self._rights.bindings += bindings

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        self._admit()
        deleted = [each for wanted in filters for each in self.describe_acls(wanted)]
        self._rights.bindings = [each for each in self._rights.bindings if each not in deleted]
        return deleted

    def describe_scram_credentials(self) -> dict[str, dict[str, int]]:
        self._admit()
        return {user: dict(found) for user, found in self._rights.users.items()}

    def alter_scram_credentials(self, changes: Iterable[NewScramCredential | OldScramCredential]) -> None:
        self._admit()
        for change in changes:
            of_user = self._rights.users.setdefault(change.user, {})
            if isinstance(change, NewScramCredential):
                of_user[change.mechanism] = change.iterations
                self._rights.passwords.append(change.password)
            elif of_user.pop(change.mechanism, None) is None:
                raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND)

    def describe_client_quotas(self) -> dict[ClientQuotaEntity, dict[str, float]]:
        return self._rights.quotas


class RightsWorld(ConsoleWorld):
    """A console in front of a cluster with rights and users."""

    def __init__(self, options: ConsoleOptions | None = None) -> None:
        self.rights = Rights()
        super().__init__(options, admin=lambda given: RightsAdmin(self.rights, self.cluster.admin(given)))


@pytest.fixture
def world() -> RightsWorld:
    return RightsWorld(CHANGES)


# Access control lists -------------------------------------------------------------------------------------


def test_entries_are_shown_with_what_they_stand_for(world: RightsWorld) -> None:
    said = words(world.get("/access"))

    assert "4 entries" in said
    assert "User:anna ● Allow Write topic orders anywhere" in said
    assert "User:bert ● Allow Read topic ord … and all that begins so anywhere" in said
    assert "User:* ■ Deny Read topic payments 192.0.2.7" in said
    assert "User:ops ● Allow Alter cluster the cluster anywhere" in said


@pytest.mark.parametrize(
    ("wanted", "principals"),
    [
        ({"kind": "Cluster"}, ["User:ops"]),
        ({"name": "orders"}, ["User:anna", "User:bert"]),
        ({"find": "ANN"}, ["User:anna"]),
        ({"permission": "Deny"}, ["User:*"]),
        ({"name": "nothing", "kind": "Topic"}, []),
    ],
)
def test_entries_are_filtered(world: RightsWorld, wanted: dict[str, str], principals: list[str]) -> None:
    page = world.get("/access", **wanted)

    shown = [each for each in ("User:anna", "User:bert", "User:*", "User:ops") if f">{each}</th>" in page]
    assert sorted(shown) == sorted(principals)
    assert principals or "No entry matches." in words(page)


def test_brokers_without_an_authorizer_are_an_ordinary_sight(world: RightsWorld) -> None:
    world.rights.refusal = ErrorCode.SECURITY_DISABLED

    said = words(world.get("/access"))

    assert "These brokers have no authorizer" in said and "Add an entry" not in said


ADDED = {
    "principal": "User:carl", "does": "Allow", "operation": "Read", "of_kind": "Topic",
    "pattern": "Prefixed", "of_name": "invoices.", "host": "",
}  # fmt: skip


def test_an_entry_is_added_behind_a_confirmation(world: RightsWorld) -> None:
    assert "Principal" in words(world.get("/access/add"))

    page = world.get("/access/add", **ADDED)
    question = "User:carl may Read on every topic whose name begins with “invoices.”, from any address."
    assert question in words(page) and "It is the first entry that applies here." in words(page)
    assert len(world.rights.bindings) == 4
    target = target_of(page)
    world.send(target, {"token": token_in(page)}, 400)
    assert len(world.rights.bindings) == 4, "nobody said that it is sure"

    there = world.send(target, {"token": token_in(page), "sure": "yes"})

    assert world.rights.bindings[-1] == entry("User:carl", name="invoices.", pattern=AclPattern.PREFIXED)
    assert "The entry was added." in words(world.get(there))
    assert "This entry is there already." in words(world.get("/access/add", **ADDED))


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"principal": "carl"}, "such as User:anna"),
        ({"of_name": ""}, "Give the name"),
        ({"operation": "ClusterAction"}, "On this kind of resource there are: All, Read"),
        ({"operation": "Dance"}, "There is no operation “Dance”."),
        ({"of_kind": "Cluster"}, "There is one cluster only"),
        ({"does": "Any"}, "allows or denies"),
        ({"pattern": "Match"}, "the beginning of one"),
        ({"principal": "User:" + "x" * 600}, "at most 512"),
    ],
)
def test_a_wrong_entry_is_explained_and_not_sent(
    world: RightsWorld, wrong: dict[str, str], advice: str
) -> None:
    assert advice in words(world.get("/access/add", 400, **{**ADDED, **wrong}))
    token = token_in(world.get("/access/add", **ADDED))
    query = "&".join(f"{name}={value}" for name, value in {**ADDED, **wrong}.items())
    world.send(f"/access/add?{query}", {"token": token, "sure": "yes"}, 400)
    assert len(world.rights.bindings) == 4


def test_an_entry_is_removed_behind_a_confirmation_and_no_other(world: RightsWorld) -> None:
    (address,) = [each for each in links(world.get("/access", find="bert")) if "/access/remove" in each]
    page = world.get(address)
    assert "User:bert may Read on every topic whose name begins with “ord”" in words(page)
    target = target_of(page)
    world.send(target, {"token": token_in(page)}, 400)
    assert len(world.rights.bindings) == 4

    there = world.send(target, {"token": token_in(page), "sure": "yes"})

    assert [each.entry.principal for each in world.rights.bindings] == ["User:anna", "User:*", "User:ops"]
    assert "The entry was removed." in words(world.get(there))
    assert "There is no such entry" in words(world.get(address))


def test_a_deny_entry_says_what_it_does(world: RightsWorld) -> None:
    said = words(world.get("/access/add", **{**ADDED, "does": "Deny"}))

    assert "User:carl may not Read on" in said and "loses it within seconds" in said


# Users ----------------------------------------------------------------------------------------------------


def test_users_are_shown_with_mechanisms_and_quotas(world: RightsWorld) -> None:
    said = words(world.get("/users"))

    assert "2 users" in said
    assert "anna SCRAM-SHA-256 4,096" in said and "anna SCRAM-SHA-512 8,192" in said
    assert "user-principal 'anna' producer_byte_rate 1.0 MiB/s" in said
    assert "bert" not in words(world.get("/users", find="ann"))


def test_who_may_not_see_users_may_see_quotas(world: RightsWorld) -> None:
    world.rights.refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    said = words(world.get("/users"))

    assert "CLUSTER_AUTHORIZATION_FAILED" in said and "producer_byte_rate" in said
    assert "Set a password" not in said


PASSWORD = {
    "user": "carl", "mechanism": "SCRAM-SHA-256", "iterations": "8192", "password": "open sesame",
    "again": "open sesame", "sure": "yes",
}  # fmt: skip


def test_a_password_is_set_and_never_shown(world: RightsWorld) -> None:
    token = token_in(world.get("/users/password"))

    there = world.send("/users/password", {"token": token, **PASSWORD})

    assert world.rights.users["carl"] == {"SCRAM-SHA-256": 8192}
    assert world.rights.passwords == ["open sesame"]
    assert "sesame" not in there
    page = world.get(there)
    assert "The SCRAM-SHA-256 password of carl was set." in words(page) and "sesame" not in page


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"again": "open barley"}, "The two passwords differ."),
        ({"sure": ""}, "Tick that you are sure."),
        ({"user": " "}, "Give the name of a user"),
        ({"password": "", "again": ""}, "Give a password"),
        ({"iterations": "3"}, "from 4,096 to 16,384"),
        ({"mechanism": "PLAIN"}, "SCRAM-SHA-512"),
    ],
)
def test_an_incomplete_password_form_changes_nothing_and_forgets_the_password(
    world: RightsWorld, wrong: dict[str, str], advice: str
) -> None:
    token = token_in(world.get("/users/password"))

    page = world.send("/users/password", {"token": token, **PASSWORD, **wrong}, 400)

    assert advice in words(page) and "sesame" not in page and "barley" not in page
    assert world.rights.passwords == [] and "carl" not in world.rights.users


def test_a_password_is_removed_behind_a_confirmation(world: RightsWorld) -> None:
    address = "/users/remove?user=anna&mechanism=SCRAM-SHA-256"
    page = world.get(address)
    assert "anna can still log in by SCRAM-SHA-512." in words(page)
    world.send(address, {"token": token_in(page)}, 400)
    assert "SCRAM-SHA-256" in world.rights.users["anna"]

    there = world.send(address, {"token": token_in(page), "sure": "yes"})

    assert world.rights.users["anna"] == {"SCRAM-SHA-512": 8192}
    assert "The SCRAM-SHA-256 password of anna was removed." in words(world.get(there))
    assert "there is nothing to remove" in words(world.get(address))
    again = world.send(address, {"token": token_in(page), "sure": "yes"}, 400)
    assert "there is nothing to remove" in words(again)


# Both -----------------------------------------------------------------------------------------------------

CHANGING = (
    "/access/add",
    "/access/remove?of_kind=Topic&of_name=orders&principal=User:anna&operation=Write&does=Allow",
    "/users/password",
    "/users/remove?user=anna&mechanism=SCRAM-SHA-512",
)


@pytest.mark.parametrize("path", CHANGING)
def test_a_console_that_only_shows_changes_no_right(path: str) -> None:
    world = RightsWorld()
    before = list(world.rights.bindings)
    for page in (world.get("/access"), world.get("/users")):
        assert "/access/remove" not in page and "/users/remove" not in page
    token = token_in_any(world)

    assert "This console only shows" in words(world.get(path, 403))
    world.send(path, {"token": token, **ADDED, **PASSWORD}, 403)

    assert world.rights.bindings == before and "carl" not in world.rights.users
    assert "SCRAM-SHA-512" in world.rights.users["anna"]


@pytest.mark.parametrize("path", CHANGING)
def test_a_form_without_the_visitors_token_changes_no_right(world: RightsWorld, path: str) -> None:
    before = list(world.rights.bindings)

    world.send(path, {**ADDED, **PASSWORD}, 400)
    world.send(path, {"token": "0" * 64, **ADDED, **PASSWORD}, 400)
    world.send(path, {**ADDED, **PASSWORD}, 403, Origin="https://evil.example")

    assert world.rights.bindings == before and "carl" not in world.rights.users
    assert "SCRAM-SHA-512" in world.rights.users["anna"]


def test_hostile_principals_and_users_are_only_text(world: RightsWorld) -> None:
    world.rights.bindings.append(entry(HOSTILE, name=HOSTILE))
    world.rights.users[HOSTILE] = {"SCRAM-SHA-512": 4096}

    for page in (world.get("/access"), world.get("/users"), world.get("/users/password", user=HOSTILE)):
        assert "<img" not in page and "\u202e" not in page
        assert "&lt;img" in page


def links(page: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'href="([^"]+)"', page)]


def target_of(page: str) -> str:
    """Where the page's form that changes something is sent."""
    (found,) = re.findall(r'method="post" action="([^"]+)"', page)
    return html.unescape(found)


def token_in_any(world: RightsWorld) -> str:
    """A token of the world's visitor, where no page has a form."""
    world.get("/access")
    visitor = world.parts.visitors.of(_Request(world))  # type: ignore[arg-type]
    return world.parts.visitors.token(visitor)


class _Request:
    """As much of a request as the visitors look at."""

    def __init__(self, world: RightsWorld) -> None:
        self.cookies = dict(world.browser.cookies)
        self.headers: dict[str, str] = {}
