"""The console in a real browser, in front of real brokers: pages open, renew themselves, and actions work."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from holdfast_log import (
    Admin,
    Consumer,
    ExclusiveProducer,
    Message,
    NewTopic,
    Producer,
    ProducerAccessMode,
    TopicPartition,
)
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
    ResourcePattern,
)
from tests.cluster import Cluster
from tests.console.browser import NARROW, WIDE, WITHIN_S, Browser
from tests.console.served import running_console

HAS_CURVE = "return (document.querySelector('.curve polyline')?.points.length || 0) > 12"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"
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
    cluster_of_module.start(3, {"authorizer.class.name": "acls", "super.users": "User:ANONYMOUS"})
    bootstrap = cluster_of_module.bootstrap
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics(
            [
                NewTopic("orders", 6, 3, {"retention.ms": "604800000", "min.insync.replicas": "2"}),
                NewTopic("journal", 2, 3),
                NewTopic("ship-positions", 12, 2),
                NewTopic("payments", 3, 3, {"cleanup.policy": "compact"}),
                NewTopic("clicks.of-the-web-shop.in-a-topic-with-a-long-name-that-has-to-be-broken", 4, 1),
            ]
        )
        give_rights(admin)
    write(bootstrap, "orders", 600)
    write(bootstrap, "ship-positions", 3_000)
    write(bootstrap, "payments", 40)
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(Message("orders", key=HOSTILE, value=HOSTILE, partition=5)).result()
    with (
        reading(bootstrap, "billing", "orders"),
        owned(bootstrap),
        writing(bootstrap, "ship-positions"),
        open_transaction(bootstrap, "till", "payments"),
    ):
        yield cluster_of_module


def give_rights(admin: Admin) -> None:
    """Entries of access control lists, users and quotas, so that there is something to see."""

    def entry(principal: str, operation: AclOperation, name: str, host: str = "*") -> AclBinding:
        prefix = AclPattern.PREFIXED if name.endswith("-") else AclPattern.LITERAL
        permission = AclPermission.ALLOW if host == "*" else AclPermission.DENY
        return AclBinding(
            ResourcePattern(AclResource.TOPIC, name, prefix), AclEntry(principal, host, operation, permission)
        )

    admin.create_acls(
        [
            entry("User:anna", AclOperation.WRITE, "orders"),
            entry("User:anna", AclOperation.READ, "payments"),
            entry("User:CN=ops,O=Example", AclOperation.ALL, "*"),
            entry("User:bert", AclOperation.READ, "ship-"),
            entry("User:*", AclOperation.WRITE, "payments", host="192.0.2.7"),
        ]
    )
    admin.alter_scram_credentials(
        [NewScramCredential("anna", "open sesame"), NewScramCredential("bert", "x", "SCRAM-SHA-256", 8192)]
    )
    admin.alter_client_quotas(
        {
            ClientQuotaEntity.of(user="anna"): {"producer_byte_rate": 1048576.0},
            ClientQuotaEntity.of(client_id=None): {"consumer_byte_rate": 10485760.0},
        }
    )


def write(bootstrap: str, topic: str, count: int) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(count):
            value = {
                "id": number,
                "customer": f"c-{number % 17}",
                "total": 12.5,
                "items": [{"sku": "A7", "n": 2}],
            }
            producer.send(
                Message(
                    topic, key=f"{topic}-{number}", value=json.dumps(value), headers=[("trace", b"4bf92f35")]
                )
            )
        producer.flush()


class writing:
    """Writes to a topic until the block ends, now more and now less, so that there is something to see."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._stop = threading.Event()
        self._given = {"bootstrap.servers": bootstrap}
        self._topic = topic
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        with Producer(self._given) as producer:
            for turn in itertools.count():
                for _ in range(10 + turn % 23):
                    producer.send(Message(self._topic, value="54.3 N, 10.1 E"))
                if self._stop.wait(0.2):
                    return

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def open_transaction(bootstrap: str, transactional_id: str, topic: str) -> Iterator[None]:
    """A transaction that is open for as long as the tests run."""
    properties = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    with Producer({**properties, "transaction.timeout.ms": 900_000}) as producer:
        transaction = producer.transaction()
        transaction.send(Message(topic, key="open", value="open", partition=0)).result()
        yield
        transaction.abort()


class reading:
    """A member of a group that reads and commits until the block ends."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._stop = threading.Event()
        self._started = threading.Event()
        self._given = {
            "bootstrap.servers": bootstrap, "group.id": group, "client.id": "billing-1",
            "auto.offset.reset": "earliest", "max.poll.records": 100, "auto.commit.interval.ms": 200,
        }  # fmt: skip
        self._topic = topic
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        with Consumer(self._given) as consumer:
            consumer.add_topic(self._topic)
            while not self._stop.is_set():
                if consumer.poll(200):
                    self._started.set()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._started.wait(WITHIN_S)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class owned:
    """An owner of the journal, and two that wait for it."""

    def __init__(self, bootstrap: str) -> None:
        self._given = {"bootstrap.servers": bootstrap}

    def _claimant(self, name: str, *, is_waiting: bool) -> ExclusiveProducer:
        return ExclusiveProducer(
            {**self._given, "client.id": f"program-of-{name}"}, "journal",
            ProducerAccessMode.WAIT_FOR_EXCLUSIVE, partitions=[0], producer_id=name, is_waiting=is_waiting,
        )  # fmt: skip

    def __enter__(self) -> None:
        with self._claimant("north-tower", is_waiting=True) as earlier:
            earlier.send(Message("journal", value="I was here", partition=0)).result()
        self._owners = [self._claimant("harbour", is_waiting=True)]
        self._owners[0].send(Message("journal", value="I lead", partition=0)).result()
        with Admin(self._given) as admin:
            for name in ("lighthouse", "pier"):
                self._owners.append(self._claimant(name, is_waiting=False))
                while name not in {each.owner_id for row in admin.describe_owners() for each in row.waiters}:
                    time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        for each in self._owners:
            each.close()


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
    page.driver.find_element(By.ID, "pause").click()

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
    page.wait("the topics", lambda: page.text("h1") == "Topics")
    press("/")
    assert page.run("return document.activeElement.id") == "find"
    press("ship", Keys.ENTER)
    page.wait("one topic", lambda: "find=ship" in page.driver.current_url and "ship-positions" in page.text())
    assert "payments" not in page.text()
    press("?")
    assert page.run("return document.getElementById('shortcuts').open")
    page.picture("keys-light")
    press(Keys.ESCAPE)
    assert not page.run("return document.getElementById('shortcuts').open")


def test_messages_are_found_by_offset_and_by_key(console: str, page: Browser) -> None:
    page.open(console + "/messages?topic=orders&partition=2&from=offset&at=5&count=10")
    offsets = page.run("return [...document.querySelectorAll('tbody th')].map((e) => e.innerText)")
    assert offsets == [str(number) for number in range(5, 15)]
    page.driver.find_element(By.LINK_TEXT, "Later").click()
    page.wait(
        "the next ten", lambda: page.run("return document.querySelector('tbody th')?.innerText") == "15"
    )

    page.open(console + "/messages?topic=orders")
    page.driver.find_element(By.ID, "key").send_keys("orders-417", Keys.ENTER)

    page.wait("the message", lambda: '"id": 417' in page.text("tbody"))
    page.driver.find_element(By.CSS_SELECTOR, "tbody a").click()
    page.wait("its page", lambda: '"customer": "c-9"' in page.text())


def test_what_strangers_write_runs_nothing(console: str, page: Browser) -> None:
    page.open(console + "/messages?topic=orders&partition=5&from=newest")
    assert HOSTILE in page.text("table")
    page.driver.find_element(By.CSS_SELECTOR, "tbody a").click()
    page.wait("the message", lambda: HOSTILE in page.text("pre"))

    assert page.run("return document.querySelectorAll('main img, main script').length") == 0


def test_a_partition_is_taken_from_its_owner(console: str, page: Browser, cluster_with_data: Cluster) -> None:
    page.open(console + PAGES["owner"])
    assert "harbour" in page.text(".facts")
    page.driver.find_element(By.PARTIAL_LINK_TEXT, "Take it away").click()
    page.wait("the question", lambda: page.text("h1") == "Take journal-0 away?")
    assert "The first who waits becomes the owner: lighthouse." in page.text()
    page.driver.find_element(By.ID, "comment").send_keys("the harbour does not answer")
    page.driver.find_element(By.NAME, "sure").click()
    page.driver.find_element(By.CSS_SELECTOR, "button.grave").click()

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

    def wait_for(title: str) -> None:
        page.wait(title, lambda: page.text("h1") == title)

    page.open(console + "/")
    page.run("document.getElementById('content').focus()")
    press("g", "a")
    wait_for("Access")
    page.driver.find_element(By.LINK_TEXT, "Add an entry…").send_keys(Keys.ENTER)
    wait_for("Add an entry")
    page.driver.find_element(By.ID, "principal").send_keys("User:dora")
    page.driver.find_element(By.ID, "of_name").send_keys("orders", Keys.ENTER)
    wait_for("Add this entry?")
    assert "User:dora may Read on the topic “orders”, from any address." in page.text()
    page.driver.find_element(By.NAME, "sure").send_keys(Keys.SPACE)
    page.driver.find_element(By.CSS_SELECTOR, "form.stack button").send_keys(Keys.ENTER)
    wait_for("Access")
    wanted = AclFilter(principal="User:dora")
    with Admin({"bootstrap.servers": cluster_with_data.bootstrap}) as admin:
        page.wait("all brokers know it", lambda: len(admin.describe_acls(wanted)) == 1)
        page.open(console + "/access?find=dora")
        page.picture("access-found-light")
        page.driver.find_element(By.PARTIAL_LINK_TEXT, "Remove…").send_keys(Keys.ENTER)
        wait_for("Remove this entry?")
        page.driver.find_element(By.NAME, "sure").send_keys(Keys.SPACE)
        page.driver.find_element(By.CSS_SELECTOR, "button.grave").send_keys(Keys.ENTER)
        wait_for("Access")
        page.wait("it is gone", lambda: not admin.describe_acls(wanted))


def test_a_password_is_set_and_removed(console: str, page: Browser, cluster_with_data: Cluster) -> None:
    page.open(console + "/users/password")
    page.driver.find_element(By.ID, "user").send_keys("emil")
    page.driver.find_element(By.ID, "password").send_keys("wind and weather")
    page.driver.find_element(By.ID, "again").send_keys("wind and weather")
    page.driver.find_element(By.NAME, "sure").click()
    page.driver.find_element(By.CSS_SELECTOR, "form.stack button.main").click()
    page.wait("the users", lambda: page.text("h1") == "Users")
    assert "wind and weather" not in page.run("return document.documentElement.outerHTML")

    def mechanisms() -> list[str]:
        with Admin({"bootstrap.servers": cluster_with_data.bootstrap}) as admin:
            return list(admin.describe_scram_credentials().get("emil", {}))

    page.wait("the brokers know it", lambda: mechanisms() == ["SCRAM-SHA-512"])
    page.open(console + "/users/remove?user=emil&mechanism=SCRAM-SHA-512")
    page.driver.find_element(By.NAME, "sure").click()
    page.driver.find_element(By.CSS_SELECTOR, "button.grave").click()
    page.wait("the users", lambda: page.text("h1") == "Users")
    page.wait("it is gone", lambda: not mechanisms())


def test_a_console_that_is_gone_is_reported(page: Browser, cluster_with_data: Cluster) -> None:
    with running_console(cluster_with_data.bootstrap, "--refresh-ms", "500") as address:
        page.open(address)
        page.wait("it is live", lambda: page.run("return document.body.classList.contains('is-live')"))
        assert "Only shows, changes nothing" in page.text(".about")

    page.wait("it is said", lambda: "The connection to the console is lost." in page.text("#announcer"))
    page.complaints()  # The browser, too, has noticed.


def test_trouble_is_shown_and_said(console: str, page: Browser, cluster_with_data: Cluster) -> None:
    """The last test of this module: a broker ends."""
    page.open(console + "/")
    page.wait("it is well", lambda: page.text("h1") == "The cluster is healthy")
    cluster_with_data.lose(cluster_with_data.brokers[2])

    page.wait("it is shown", lambda: "Broker 3 is down" in page.text())
    page.wait("it is said", lambda: page.text("#announcer"))
    for scheme in ("light", "dark"):
        page.dress(scheme)
        page.picture(f"trouble-{scheme}")
        assert page.hindrances() == []
