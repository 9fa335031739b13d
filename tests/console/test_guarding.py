"""Who may see and who may change: host names, origins, tokens, read-only consoles, logins, unsafe starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast_log import Message, ProducerAccessMode
from holdfast_log.console.asking.work import Clients
from holdfast_log.console.guarding.gate import comes_from_here, host_name
from holdfast_log.console.guarding.login import missing_for_login
from holdfast_log.console.guarding.visitors import COOKIE, FAILURES_MAX, IDLE_S, Visitor
from holdfast_log.console.options import ConsoleOptions, UnsafeStart, check
from holdfast_log.console.pages import login
from holdfast_log.console.pages.login import own_path
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.testing import FakeCluster
from tests.console.world import ConsoleWorld, token_in, words

RELEASE = "/owner/release?group=&topic=orders&partition=0"
OWNER = {"group": "", "topic": "orders", "partition": 0}


# Names and origins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil", ""]
)
def test_other_names_are_refused(host: str) -> None:
    """A site whose name points to this machine must not read the cluster through somebody's browser."""
    answer = ConsoleWorld().browser.get("/", headers={"Host": host})

    assert answer.status_code == 421 and "--name" in answer.text


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9000", "127.0.0.1:1", "[::1]:8080", "console.example"]
)
def test_own_names_are_answered_at_any_port(host: str) -> None:
    world = ConsoleWorld(ConsoleOptions(names=("console.example",)))

    assert world.browser.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("header", "name"),
    [("a:1", "a"), ("A", "a"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("a:b", "a:b"), ("::1", "::1")],
)
def test_host_name_leaves_the_port_out(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("headers", "comes"),
    [
        ({"host": "a:1", "origin": "http://a:1"}, True),
        ({"host": "a:1", "origin": "http://a:2"}, False),
        ({"host": "a:1", "origin": "http://b"}, False),
        ({"host": "a:1", "origin": "null"}, False),
        ({"host": "a:1"}, False),
        ({"host": "a:1", "sec-fetch-site": "same-origin"}, True),
        ({"host": "a:1", "sec-fetch-site": "cross-site", "origin": "http://a:1"}, False),
        ({"host": "a:1", "sec-fetch-site": "same-site", "origin": "http://a:1"}, False),
    ],
)
def test_forms_of_other_sites_are_recognised(headers: dict[str, str], comes: bool) -> None:
    assert comes_from_here(headers) is comes


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(method: str) -> None:
    assert ConsoleWorld().browser.request(method, "/").status_code == 405


def test_every_answer_has_the_protecting_headers() -> None:
    world = ConsoleWorld()
    for path, host in (
        ("/", "localhost"),
        ("/nothing", "localhost"),
        ("/static/console.css", "localhost"),
        ("/", "evil"),
    ):
        headers = world.browser.get(path, headers={"Host": host}).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "same-origin"


def test_the_cookie_is_for_this_site_alone() -> None:
    answer = ConsoleWorld().browser.get("/")

    given = answer.headers["set-cookie"].lower()
    assert COOKIE in given and "httponly" in given and "samesite=strict" in given and "secure" not in given
    secure = ConsoleWorld(ConsoleOptions(has_tls=True)).browser.get("/").headers["set-cookie"].lower()
    assert "secure" in secure


# Changes --------------------------------------------------------------------------------------------------


def changing() -> ConsoleWorld:
    world = ConsoleWorld(ConsoleOptions(allow_changes=True))
    world.cluster.create_topic("orders", 1)
    return world


def owned(world: ConsoleWorld, owner: str = "harbour") -> Any:
    return world.cluster.exclusive_producer("orders", mode=ProducerAccessMode.EXCLUSIVE, producer_id=owner)


def holder(world: ConsoleWorld) -> str | None:
    with world.cluster.admin() as admin:
        return next((row.owner_id for row in admin.describe_owners()), None)


def test_a_console_that_only_shows_changes_nothing() -> None:
    world = ConsoleWorld()
    world.cluster.create_topic("orders", 1)
    with owned(world):
        page = world.get("/owner", **OWNER)
        assert "Take it away" not in page and "--allow-changes" in page
        world.get(RELEASE, 403)
        token = world.parts.visitors.token(Visitor(world.browser.cookies[COOKIE]))
        world.send(RELEASE, {"token": token, "generation": "0", "comment": "x", "sure": "yes"}, 403)
        assert holder(world) == "harbour"


def test_a_resource_is_taken_away_behind_a_confirmation() -> None:
    world = changing()
    with owned(world):
        assert "Take it away" in world.get("/owner", **OWNER)
        page = world.get(RELEASE)
        said = words(page)
        assert "harbour" in said and "loses it at once" in said
        generation = page.partition('name="generation" value="')[2].partition('"')[0]

        target = world.send(
            RELEASE, {"token": token_in(page), "generation": generation, "comment": "it burns", "sure": "yes"}
        )

        assert holder(world) is None
        said = words(world.get(target))
        assert f"orders-0 was taken from harbour, generation {generation}." in said
        assert "An administrator took it away." in said
    assert "was taken from" not in world.get("/owner", **OWNER, done=77), "a link cannot make it say so"


@pytest.mark.parametrize(
    "missing",
    [
        {"token": ""},
        {"token": "0" * 64},
        {"comment": ""},
        {"sure": ""},
        {"generation": ""},
        {"comment": "x" * 501},
    ],
)
def test_an_incomplete_confirmation_changes_nothing(missing: dict[str, str]) -> None:
    world = changing()
    with owned(world):
        page = world.get(RELEASE)
        generation = page.partition('name="generation" value="')[2].partition('"')[0]
        fields = {"token": token_in(page), "generation": generation, "comment": "why", "sure": "yes"}

        answer = world.send(RELEASE, fields | missing, 400)

        assert 'role="alert"' in answer
        assert holder(world) == "harbour"


def test_a_later_owner_is_not_released_by_mistake() -> None:
    world = changing()
    with owned(world, "first"):
        page = world.get(RELEASE)
        generation = page.partition('name="generation" value="')[2].partition('"')[0]
    with owned(world, "second"):
        answer = world.send(
            RELEASE, {"token": token_in(page), "generation": generation, "comment": "why", "sure": "yes"}, 400
        )

        assert "Meanwhile somebody else has become the owner." in words(answer)
        assert holder(world) == "second"


def test_a_form_of_another_site_or_of_another_visitor_changes_nothing() -> None:
    world = changing()
    with owned(world):
        page = world.get(RELEASE)
        fields = {"token": token_in(page), "generation": "0", "comment": "why", "sure": "yes"}
        assert world.browser.post(RELEASE, data=fields).status_code == 403
        assert world.browser.post(RELEASE, data=fields, headers={"Origin": "http://evil"}).status_code == 403
        world.browser.cookies.clear()
        world.send(RELEASE, fields, 400)
        assert holder(world) == "harbour"


def test_a_huge_form_is_refused() -> None:
    world = changing()
    with owned(world):
        world.send(RELEASE, {"token": "x" * 100_000}, 400)


# Logins ---------------------------------------------------------------------------------------------------


def with_login(monkeypatch: pytest.MonkeyPatch) -> ConsoleWorld:
    """A console into which ada logs in with the password engine."""
    monkeypatch.setattr(login, "WAIT_AFTER_FAILURE_S", 0.0)

    def check_login(user: str, password: str) -> Mapping[str, Any]:
        if (user, password) != ("ada", "engine"):
            raise BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED)
        return {"client.id": "console-of-ada"}

    world = ConsoleWorld(ConsoleOptions(needs_login=True, allow_changes=True), check_login=check_login)
    world.cluster.create_topic("orders", 1)
    world.cluster.write(Message("orders", value="secret"))
    return world


def log_in(world: ConsoleWorld, password: str = "engine", status: int = 303, target: str = "/topics") -> str:
    page = world.get("/login", next=target)
    return world.send(
        f"/login?next={target}", {"token": token_in(page), "user": "ada", "password": password}, status
    )


@pytest.mark.parametrize(
    "path", ["/", "/topics", "/messages?topic=orders", "/owners", "/configs", "/access", "/users", RELEASE]
)
def test_without_a_login_nothing_is_shown(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    world = with_login(monkeypatch)

    answer = world.browser.get(path, follow_redirects=False)

    assert answer.status_code == 303 and answer.headers["location"].startswith("/login?next=%2F")
    assert "orders" not in answer.text
    assert world.browser.get("/events").status_code == 403


def test_after_the_login_people_see_with_their_own_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_login(monkeypatch)

    assert log_in(world) == "/topics"

    assert "ada" in words(world.get("/topics"))
    world.given.clear()
    assert "secret" in world.get("/messages", topic="orders")
    assert world.given[-1]["client.id"] == "console-of-ada"


def test_a_login_gives_a_new_cookie_and_ends_with_the_logout(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_login(monkeypatch)
    world.get("/login")
    before = world.browser.cookies[COOKIE]
    log_in(world)
    after = world.browser.cookies[COOKIE]
    assert before != after

    world.send("/logout", {"token": token_in(world.get("/topics"))})
    world.browser.cookies.set(COOKIE, after, domain="127.0.0.1")

    assert world.browser.get("/topics", follow_redirects=False).status_code == 303


def test_a_login_ends_when_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_login(monkeypatch)
    log_in(world)
    for _ in range(10):
        world.later(IDLE_S / 5)
        world.browser.get("/topics", headers={"X-Holdfast-Live": "1"}, follow_redirects=False)

    assert world.browser.get("/topics", follow_redirects=False).status_code == 303, "a page renews itself"


def test_wrong_passwords_are_refused_and_after_some_of_them_one_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_login(monkeypatch)
    for _ in range(FAILURES_MAX):
        assert "does not let ada in" in words(log_in(world, "wrong", 403))

    assert "too many attempts" in words(log_in(world, "engine", 429))

    world.later(60)
    log_in(world)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/topics?page=2", "/topics?page=2"), ("//evil.example", "/"), ("https://evil.example", "/"),
        ("", "/"), ("/\\evil.example", "/"), ("javascript:alert(1)", "/"), ("/a\r\nSet-Cookie: b", "/"),
        ("topics", "/"),
    ],
)  # fmt: skip
def test_a_login_leads_to_pages_of_the_console_only(target: str, path: str) -> None:
    assert own_path(target) == path


def test_a_person_never_gets_the_consoles_own_credentials() -> None:
    given: list[Mapping[str, Any]] = []

    def make(properties: Mapping[str, Any]) -> Any:
        given.append(properties)
        return FakeCluster().admin()

    own = {
        "sasl.jaas.config": "secret",
        "sasl_username": "console",
        "sasl.password": "secret",
        "client.id": "c",
    }
    clients = Clients(own, make_admin=make, make_consumer=make)
    with clients.admin({"sasl.username": "ada"}):
        pass
    clients.consumer({"sasl.username": "ada"})

    for properties in given:
        assert "secret" not in properties.values() and "console" not in properties.values()
        assert properties["sasl.username"] == "ada" and properties["client.id"] == "c"
    with clients.admin({}):
        assert given[-1]["sasl.jaas.config"] == "secret"


def test_the_login_says_what_it_needs() -> None:
    missing = missing_for_login({"security.protocol": "PLAINTEXT"})

    assert missing is not None and "SASL" in missing and "--login" in missing


# Starting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (ConsoleOptions("0.0.0.0"), "--login"),
        (ConsoleOptions("192.0.2.7"), "ssh -L"),
        (ConsoleOptions("::", needs_login=True), "--certificate"),
        (ConsoleOptions("::", needs_login=True, has_tls=True), "--name"),
        (ConsoleOptions("console.example", needs_login=True), "--behind-tls"),
    ],
)
def test_an_unsafe_start_is_refused_with_what_to_do(options: ConsoleOptions, advice: str) -> None:
    with pytest.raises(UnsafeStart, match=advice):
        check(options)


@pytest.mark.parametrize(
    "options",
    [
        ConsoleOptions(), ConsoleOptions("localhost"), ConsoleOptions("::1"), ConsoleOptions("127.3.2.1"),
        ConsoleOptions("192.0.2.7", needs_login=True, has_tls=True),
        ConsoleOptions("0.0.0.0", needs_login=True, is_behind_tls=True, names=("console.example",)),
    ],
)  # fmt: skip
def test_a_safe_start_is_allowed(options: ConsoleOptions) -> None:
    check(options)


def test_the_names_that_are_answered_are_those_of_the_address() -> None:
    assert ConsoleOptions("::1").allowed_hosts == {"localhost", "127.0.0.1", "[::1]"}
    assert ConsoleOptions("0.0.0.0", names=("A.example",)).allowed_hosts == {"a.example"}
    assert ConsoleOptions("192.0.2.7").allowed_hosts == {"192.0.2.7"}
