"""The console in a real browser, in front of real brokers: pages open, renew themselves, and actions work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from holdfast_log import Admin, Message, Producer, TopicPartition
from holdfast_log.clients.admin import AclFilter
from tests.cluster import Cluster
from tests.console.browser import NARROW, WIDE, Browser
from tests.console.furnished import HOSTILE, shown, until_all_know
from tests.console.served import running_console

HAS_CURVE = "return (document.querySelector('.curve polyline')?.points.length || 0) > 12"
IMPATIENT = "default.api.timeout.ms=10000\nrequest.timeout.ms=10000\n"
"""A console that has asked for long, since a broker ended, waits ten times as long until it asks again."""
ENTRY = "operation=Write&of_kind=Topic&of_name=orders"
PAGES = {
    "cluster": "/",
    "topics": "/topics",
    "topic": "/topic?name=orders",
    "messages": "/messages?topic=orders",
    "message": "/message?topic=orders&partition=0&offset=3",
    "hex": "/message?topic=orders&partition=0&offset=3&as=hex",
    "groups": "/groups",
    "group": "/group?name=billing",
    "transactions": "/transactions",
    "transaction": "/transaction?id=till",
    "owners": "/owners",
    "owner": "/owner?group=&topic=journal&partition=0",
    "release": "/owner/release?group=&topic=journal&partition=0",
    "settings": "/configs?broker=1",
    "settings-of-a-topic": "/configs?topic=orders&all=yes",
    "access": "/access",
    "access-add": "/access/add",
    "access-add-sure": f"/access/add?{ENTRY}&principal=User:carl&does=Deny",
    "access-remove": f"/access/remove?{ENTRY}&principal=User:anna&does=Allow",
    "users": "/users",
    "user-password": "/users/password?user=anna",
    "user-remove": "/users/remove?user=anna&mechanism=SCRAM-SHA-512",
    "not-found": "/topic?name=nothing",
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def cluster_with_data(browser: Browser, cluster_of_module: Cluster) -> Iterator[Cluster]:
    """Three brokers with topics, messages, a group and owners. Without a browser, none starts."""
    with shown(cluster_of_module):
        yield cluster_of_module


@pytest.fixture(scope="module")
def console(cluster_with_data: Cluster) -> Iterator[str]:
    options = ("--allow-changes", "--refresh-ms", "500")
    with running_console(cluster_with_data.bootstrap, *options) as address:
        yield address


@pytest.fixture
def page(browser: Browser) -> Iterator[Browser]:
    """The browser, wide and light, and with nothing left to complain about at the end."""
    browser.size(*WIDE)
    browser.dress("light")
    browser.complaints()
    yield browser
    assert browser.complaints() == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_light_and_dark_and_hinders_nobody(console: str, browser: Browser, name: str) -> None:
    browser.size(*WIDE)
    for scheme in ("light", "dark"):
        browser.dress(scheme)
        browser.complaints()
        browser.open(console + PAGES[name])
        browser.wait("a heading", lambda: browser.text("h1"))
        if name == "cluster":
            browser.wait("a curve", lambda: browser.run(HAS_CURVE))
        browser.picture(f"{name}-{scheme}")
        assert browser.hindrances() == []
        refused = [
            each for each in browser.complaints() if "status of 404" not in each or name != "not-found"
        ]
        assert refused == []


@pytest.mark.parametrize(
    "name",
    [
        "cluster", "topics", "topic", "messages", "message", "owner", "settings", "access", "access-add",
        "users",
    ],
)  # fmt: skip
def test_a_page_fits_a_narrow_window(console: str, page: Browser, name: str) -> None:
    page.size(*NARROW)
    page.open(console + PAGES[name])

    page.picture(f"{name}-narrow")

    assert page.run("return document.documentElement.scrollWidth <= window.innerWidth")
    assert page.hindrances() == []


def test_a_page_renews_itself_without_being_loaded_again(
    console: str, page: Browser, cluster_with_data: Cluster
) -> None:
    page.open(console + "/topic?name=journal")
    page.run("window.notLoadedAgain = true")
    before = page.text("#live-topic")
    with Producer({"bootstrap.servers": cluster_with_data.bootstrap}) as producer:
        for number in range(50):
            producer.send(Message("journal", value=f"entry {number}", partition=1))
        producer.flush()

    page.wait("a new end", lambda: page.text("#live-topic") != before and "50" in page.text("#live-topic"))

    assert page.run("return window.notLoadedAgain")


def test_the_focus_stays_where_it_is_when_the_page_is_renewed(console: str, page: Browser) -> None:
    page.open(console + "/topics")
    page.run("document.querySelector('tbody a').focus()")
    focused = page.run("return document.activeElement.href")
    renewed = int(page.run("return document.body.dataset.renewals || 0"))

    page.wait(
        "three renewals", lambda: int(page.run("return document.body.dataset.renewals || 0")) >= renewed + 3
    )

    assert focused and page.run("return document.activeElement.href") == focused


def test_a_paused_page_stays_as_it_is(console: str, page: Browser) -> None:
    page.open(console + "/")
    page.wait("it is live", lambda: page.run("return document.body.classList.contains('is-live')"))
    page.found(By.ID, "pause").click()

    assert page.run("return document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    assert page.text("#announcer") == "The page stays as it is."
    shown = page.text("#freshness")
    page.run(
        "window.seen = 0; new EventSource('/events').addEventListener('look', () => { window.seen += 1; })"
    )
    page.wait("three looks", lambda: page.run("return window.seen") >= 3)
    assert page.text("#freshness") == shown


def test_the_keyboard_is_enough(console: str, page: Browser) -> None:
    def press(*keys: str) -> None:
        page.driver.switch_to.active_element.send_keys(*keys)

    page.open(console + "/")
    press(Keys.TAB)
    assert page.run("return document.activeElement.className") == "skip"
    press(Keys.ENTER)
    page.wait("the content has the focus", lambda: page.run("return document.activeElement.id") == "content")
    press("g", "t")
    page.await_page("Topics")
    press("/")
    assert page.run("return document.activeElement.id") == "find"
    press("ship", Keys.ENTER)
    page.wait("one topic", lambda: "find=ship" in page.driver.current_url and "ship-positions" in page.text())
    page.await_page("Topics")
    assert "payments" not in page.text()
    press("?")
    assert page.run("return document.getElementById('shortcuts').open")
    page.picture("keys-light")
    press(Keys.ESCAPE)
    assert not page.run("return document.getElementById('shortcuts').open")


def test_messages_are_found_by_offset_and_by_key(console: str, page: Browser) -> None:
    def offsets() -> list[str]:
        return list(page.run("return [...document.querySelectorAll('tbody th')].map((e) => e.innerText)"))

    page.open_until(
        console + "/messages?topic=orders&partition=2&from=offset&at=5&count=10",
        "ten messages",
        lambda: len(offsets()) >= 10,
    )
    assert offsets() == [str(number) for number in range(5, 15)]
    page.found(By.LINK_TEXT, "Later").click()
    page.wait("the next offset", lambda: "at=15" in page.driver.current_url)
    page.open_until(page.driver.current_url, "the next ten", lambda: offsets()[:1] == ["15"])

    page.open(console + "/messages?topic=orders")
    page.found(By.ID, "key").send_keys("orders-417", Keys.ENTER)

    page.wait("the key is sought", lambda: "key=orders-417" in page.driver.current_url)
    page.open_until(page.driver.current_url, "the message", lambda: '"id": 417' in page.text("tbody"))
    page.found(By.CSS_SELECTOR, "tbody a").click()
    page.wait("its page", lambda: '"customer": "c-9"' in page.text())


def test_what_strangers_write_runs_nothing(console: str, page: Browser) -> None:
    page.open_until(
        console + "/messages?topic=orders&partition=5&from=newest",
        "the message among others",
        lambda: HOSTILE in page.text("table"),
    )
    page.found(By.CSS_SELECTOR, "tbody a").click()
    page.wait("the message", lambda: HOSTILE in page.text("pre"))

    assert page.run("return document.querySelectorAll('main img, main script').length") == 0


def test_a_partition_is_taken_from_its_owner(console: str, page: Browser, cluster_with_data: Cluster) -> None:
    page.open(console + PAGES["owner"])
    assert "harbour" in page.text(".facts")
    page.found(By.PARTIAL_LINK_TEXT, "Take it away").click()
    page.await_page("Take journal-0 away?")
    assert "The first who waits becomes the owner: lighthouse." in page.text()
    page.found(By.ID, "comment").send_keys("the harbour does not answer")
    page.found(By.NAME, "sure").click()
    page.found(By.CSS_SELECTOR, "button.grave").click()

    page.wait("it is said", lambda: "journal-0 was taken from harbour" in page.text())
    page.wait("the next owner", lambda: "lighthouse" in page.text(".facts"))
    assert "An administrator took it away." in page.text("ol.line")
    page.picture("taken-away-light")
    with Admin({"bootstrap.servers": cluster_with_data.bootstrap}) as admin:
        (row,) = admin.describe_owners([""], [TopicPartition("journal", 0)])
    assert row.owner_id == "lighthouse"


def test_a_right_is_given_and_taken_by_the_keyboard(
    console: str, page: Browser, cluster_with_data: Cluster
) -> None:
    def press(*keys: str) -> None:
        page.driver.switch_to.active_element.send_keys(*keys)

    page.open(console + "/")
    page.run("document.getElementById('content').focus()")
    press("g", "a")
    page.await_page("Access")
    page.found(By.LINK_TEXT, "Add an entry…").send_keys(Keys.ENTER)
    page.await_page("Add an entry")
    page.found(By.ID, "principal").send_keys("User:dora")
    page.found(By.ID, "of_name").send_keys("orders", Keys.ENTER)
    page.await_page("Add this entry?")
    assert "User:dora may Read on the topic “orders”, from any address." in page.text()
    page.found(By.NAME, "sure").send_keys(Keys.SPACE)
    page.found(By.CSS_SELECTOR, "form.stack button").send_keys(Keys.ENTER)
    page.await_page("Access")
    wanted = AclFilter(principal="User:dora")
    until_all_know(cluster_with_data, lambda admin: len(admin.describe_acls(wanted)) == 1)
    page.open(console + "/access?find=dora")
    page.picture("access-found-light")
    page.found(By.PARTIAL_LINK_TEXT, "Remove…").send_keys(Keys.ENTER)
    page.await_page("Remove this entry?")
    page.found(By.NAME, "sure").send_keys(Keys.SPACE)
    page.found(By.CSS_SELECTOR, "button.grave").send_keys(Keys.ENTER)
    page.await_page("Access")
    until_all_know(cluster_with_data, lambda admin: not admin.describe_acls(wanted))


def test_a_password_is_set_and_removed(console: str, page: Browser, cluster_with_data: Cluster) -> None:
    page.open(console + "/users/password")
    page.found(By.ID, "user").send_keys("emil")
    page.found(By.ID, "password").send_keys("wind and weather")
    page.found(By.ID, "again").send_keys("wind and weather")
    page.found(By.NAME, "sure").click()
    page.found(By.CSS_SELECTOR, "form.stack button.main").click()
    page.await_page("Users")
    assert "wind and weather" not in page.run("return document.documentElement.outerHTML")

    def mechanisms(admin: Admin) -> list[str]:
        return list(admin.describe_scram_credentials().get("emil", {}))

    until_all_know(cluster_with_data, lambda admin: mechanisms(admin) == ["SCRAM-SHA-512"])
    page.open(console + "/users/remove?user=emil&mechanism=SCRAM-SHA-512")
    page.found(By.NAME, "sure").click()
    page.found(By.CSS_SELECTOR, "button.grave").click()
    page.await_page("Users")
    until_all_know(cluster_with_data, lambda admin: not mechanisms(admin))


def test_a_console_that_is_gone_is_reported(page: Browser, cluster_with_data: Cluster) -> None:
    with running_console(cluster_with_data.bootstrap, "--refresh-ms", "500") as address:
        page.open(address)
        page.wait("it is live", lambda: page.run("return document.body.classList.contains('is-live')"))
        assert "Only shows, changes nothing" in page.text(".about")

    page.wait("it is said", lambda: "The connection to the console is lost." in page.text("#announcer"))
    page.leave()  # The browser, too, has noticed, and would again whenever it tries to connect.


def test_trouble_is_shown_and_said(page: Browser, cluster_with_data: Cluster) -> None:
    """A broker ends, and is started again: the tests of this module need not run in their order."""
    options = ("--refresh-ms", "500")
    with running_console(cluster_with_data.bootstrap, *options, properties=IMPATIENT) as address:
        page.open(address)
        page.wait("it is well", lambda: page.text("h1") == "The cluster is healthy")
        cluster_with_data.lose(cluster_with_data.brokers[2])

        page.wait("it is shown", lambda: "Broker 3 is down" in page.text())
        page.wait("it is said", lambda: page.text("#announcer"))
        for scheme in ("light", "dark"):
            page.dress(scheme)
            page.picture(f"trouble-{scheme}")
            assert page.hindrances() == []
        page.leave()
    cluster_with_data.make_whole()
