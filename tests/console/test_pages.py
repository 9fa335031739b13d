"""The pages over a fake cluster: what they show, what they bound, and that hostile names stay harmless."""

from __future__ import annotations

import asyncio
import dataclasses
from html.parser import HTMLParser

import pytest

from holdfast_log import Message, ProducerAccessMode
from holdfast_log.clients.admin import LogDir, ReplicaSize
from holdfast_log.console.asking.group_questions import GroupDetail
from holdfast_log.console.asking.snapshot import ClusterSnapshot, ViewPart
from holdfast_log.console.wording import UNKNOWN
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.console.world import ConsoleWorld, words

PAGES = ("/", "/topics", "/messages", "/groups", "/transactions", "/owners", "/configs")
"""The pages over a fake cluster, which knows nothing of rights: tests/console/test_rights.py has those."""


@pytest.fixture
def world() -> ConsoleWorld:
    return ConsoleWorld()


def filled(world: ConsoleWorld, count: int = 60) -> None:
    world.cluster.create_topic("orders", 3)
    world.cluster.write(
        *[
            Message("orders", key=f"k{n}", value=f'{{"n": {n}, "price": 1.50}}', partition=n % 3)
            for n in range(count)
        ]
    )


@pytest.mark.parametrize("path", PAGES)
def test_every_page_shows_an_empty_cluster(world: ConsoleWorld, path: str) -> None:
    page = world.get(path)

    assert "<h1>" in page and page.count("<h1") == 1


def test_the_first_page_says_how_the_cluster_is(world: ConsoleWorld) -> None:
    filled(world)

    said = words(world.get("/"))

    assert "The cluster is healthy 2 brokers, 1 topic, 3 partitions." in said
    assert "broker-1:9092" in said and "Controller" in said


def test_a_broker_that_is_down_is_shown_with_what_to_do(world: ConsoleWorld) -> None:
    filled(world)
    world.cluster.stop_broker(2)

    said = words(world.get("/"))

    assert "things need you" in said
    assert "have no leader: nobody can write or read them. Start the brokers" in said


def test_rates_come_from_the_ends_of_two_looks(world: ConsoleWorld) -> None:
    filled(world)
    assert "The curve begins when the second look" in world.get("/")
    world.cluster.write(*[Message("orders", value="x", partition=0) for _ in range(600)])
    world.later(60)

    said = words(world.get("/"))

    assert "Messages/s 10.0" in said
    assert "orders 10.0" in said
    world.later(60)
    assert (
        'role="img" aria-label="Messages per second over the last 1 min: now 0, highest 10.0."'
        in world.get("/")
    )


def test_when_no_broker_answers_the_page_says_so_and_keeps_what_it_knows(world: ConsoleWorld) -> None:
    filled(world)
    world.get("/")
    for broker in world.cluster.brokers:
        world.cluster.stop_broker(broker)
    world.later()

    said = words(world.get("/"))

    assert "No broker answers any more: this is what was last seen." in said
    assert "broker-1:9092" in said


def test_a_cluster_that_never_answered_is_no_failure_of_the_console(world: ConsoleWorld) -> None:
    for broker in world.cluster.brokers:
        world.cluster.stop_broker(broker)

    assert "No broker answers." in words(world.get("/"))
    for path in PAGES:
        said = words(world.get(path))
        assert not any(claim in said for claim in ("There are no ", "Nobody owns", "Held 0", "healthy")), path


def test_many_browsers_cost_the_cluster_one_look(world: ConsoleWorld) -> None:
    filled(world)
    world.get("/")
    world.get("/transactions")  # Kept from here on, as the look is.
    asked = world.cluster.count_requests("DescribeCluster")

    for path in PAGES * 5:
        world.get(path)

    assert world.cluster.count_requests("DescribeCluster") == asked
    world.later()
    world.get("/topics")
    assert world.cluster.count_requests("DescribeCluster") > asked


def test_ten_thousand_topics_are_paged_found_and_ordered(world: ConsoleWorld) -> None:
    for number in range(10_000):
        world.cluster.add_topic(f"topic-{number:05}")

    page = world.get("/topics")

    assert "10,000 topics, page 1 of 200" in words(page)
    assert page.count("<tr>") == 51 and "topic-00049" in page and "topic-00050" not in page
    assert "topic-09999" in world.get("/topics", page=200)
    assert "topic-09999" in world.get("/topics", page=10**9), "a page after the last is the last"
    assert "topic-04711" in world.get("/topics", find="4711")
    assert "No topic has “nothing” in its name." in words(world.get("/topics", find="nothing"))


def test_a_topic_has_its_partitions_and_their_offsets(world: ConsoleWorld) -> None:
    filled(world)

    said = words(world.get("/topic", name="orders"))

    assert "Partitions 3 Messages, by offsets 60" in said
    assert "1 ● In sync 2 2 2 0 20" in said


def test_an_unknown_topic_is_not_found(world: ConsoleWorld) -> None:
    assert "There is no such thing in this cluster" in words(world.get("/topic", 404, name="nothing"))
    world.get("/messages", 404, topic="nothing")


@pytest.mark.parametrize(
    "path",
    [
        "/topics?page=one", "/messages?topic=orders&from=nowhere", "/messages?topic=orders&count=100000",
        "/messages?topic=orders&from=time&at=tomorrow", "/messages?topic=orders&key=0xq",
        "/message?topic=orders&partition=0&offset=-1", "/message?topic=orders&partition=0&offset=0&as=poem",
        "/topic", "/group", "/owner?group=", "/configs?topic=a&broker=1", "/configs?broker=x",
    ],
)  # fmt: skip
def test_a_wrong_address_is_explained(world: ConsoleWorld, path: str) -> None:
    filled(world)

    answer = world.browser.get(path)

    assert answer.status_code == 400
    assert "Traceback" not in answer.text and 'role="alert"' in answer.text


def test_groups_are_shown_with_members_and_lag(world: ConsoleWorld) -> None:
    filled(world)
    with world.cluster.consumer({"group.id": "billing", "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic("orders")
        while not consumer.poll(1_000, 10):
            pass
        consumer.commit()

        assert "billing classic ● Stable 1 3 50" in words(world.get("/groups"))
        said = words(world.get("/group", name="billing"))
        assert "Members 1 Partitions 3 Lag 50" in said and "orders" in said

    world.later()
    assert "billing classic ○ No members 0" in words(world.get("/groups"))


def test_a_group_of_kip_848_is_shown_with_its_epochs_and_who_is_on_the_way(world: ConsoleWorld) -> None:
    filled(world)
    properties = {"group.id": "billing", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    with world.cluster.consumer(properties) as consumer:
        consumer.add_topic("orders")
        while not consumer.poll(1_000, 10):
            pass
        assert "billing KIP-848 ● Stable 1 3" in words(world.get("/groups"))
        said = words(world.get("/group", name="billing"))
        assert "Protocol KIP-848 Epoch 1 Epoch of the assignment 1" in said and "● There" in said

        detail = asyncio.run(world.parts.groups.find("billing"))
        assert detail.consumers is not None
        (member,) = detail.consumers.members
        late = dataclasses.replace(member, target=member.partitions[:1], is_classic=True)
        changed = dataclasses.replace(detail.consumers, epoch=2, members=(late,))

        async def find(name: str) -> GroupDetail:
            return dataclasses.replace(detail, consumers=changed)

        world.parts.groups.find = find  # type: ignore[method-assign]
        said = words(world.get("/group", name="billing"))
        assert "Epoch 2 Epoch of the assignment 1" in said
        assert "▲ On its way has 3, is to have 1 speaks the classic protocol" in said


def test_transactions_are_shown_with_how_long_they_are_open(world: ConsoleWorld) -> None:
    filled(world)
    world.hand.at_s = -1_700_000_000  # The fake coordinator's clock begins near 0.
    assert "There are no transactional ids." in words(world.get("/transactions"))
    producer = world.cluster.producer({"transactional.id": "till-1", "transaction.timeout.ms": 60_000})
    other = world.cluster.producer({"transactional.id": "till-2"})
    with other.transaction() as ended:
        ended.send(Message("orders", value="x", partition=0))
    world.cluster.advance(1_000)
    transaction = producer.transaction()
    transaction.send(Message("orders", value="x", partition=1)).result()
    began_s = world.cluster.transactions.shard.transactions["till-1"].started_ms / 1000
    world.hand.at_s = began_s - 1_700_000_000 + 30.5

    said = words(world.get("/transactions"))
    assert "Transactional ids 2 Not ended 1" in said
    assert "till-1 ● Open 30 s 1" in said and f"till-2 ○ Committed {UNKNOWN} {UNKNOWN}" in said
    assert "till-2" not in words(world.get("/transactions", ended="no"))
    said = words(world.get("/transaction", id="till-1"))
    assert "Open for 30 s Timeout 1 min" in said and "orders 1" in said
    assert "No transaction is open." in words(world.get("/transaction", id="till-2"))

    world.later(31)
    assert "till-1 ▲ Open for too long 1 min 1" in words(world.get("/transactions"))
    assert "has not ended within its timeout of 1 min" in words(world.get("/transaction", id="till-1"))
    transaction.abort()
    producer.close()
    other.close()


def test_an_unknown_transactional_id_is_not_found(world: ConsoleWorld) -> None:
    page = words(world.get("/transaction", 404, id="nobody"))
    assert "No coordinator knows the transactional id “nobody”." in page


def test_replicas_that_move_between_directories_are_shown(world: ConsoleWorld) -> None:
    filled(world)
    snapshot = asyncio.run(world.parts.watch.current())
    at = TopicPartition("orders", 1)
    there = LogDir(2, "/disk-2", None, (ReplicaSize(at, 4_096, 17, is_future=True),), -1, -1)
    moving = dataclasses.replace(snapshot, log_dirs=ViewPart((there,), snapshot.at_s))
    assert list(moving.moving) == [at] and moving.partition_sizes == {}

    async def current() -> ClusterSnapshot:
        return moving

    world.parts.watch.current = current  # type: ignore[method-assign]

    assert "moves to /disk-2 on broker 2, 17 offsets behind" in words(world.get("/topic", name="orders"))
    assert "Moves between log directories 1 partition" in words(world.get("/"))
    assert "orders 1 2 /disk-2 4.0 KiB 17" in words(world.get("/"))


def test_a_group_in_trouble_does_not_hide_the_others(world: ConsoleWorld) -> None:
    filled(world)
    with world.cluster.consumer({"group.id": "billing"}) as consumer:
        consumer.add_topic("orders")
        consumer.poll(1_000)
        world.get("/owners")  # The list of groups is known from here on.
        world.cluster.fail_next("DescribeGroups", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)

        said = words(world.get("/groups"))

    assert "billing" in said and "group billing: " in said


def test_an_unknown_group_is_not_found(world: ConsoleWorld) -> None:
    world.get("/group", 404, name="nobody")


def test_owners_are_shown_with_who_waits(world: ConsoleWorld) -> None:
    filled(world)
    with world.cluster.exclusive_producer("orders", mode=ProducerAccessMode.EXCLUSIVE, producer_id="harbour"):
        said = words(world.get("/owners"))
        assert "Held 3" in said and "orders-0 writers ● Owned harbour" in said
        assert "harbour" in words(world.get("/topic", name="orders"))
        page = words(world.get("/owner", group="", topic="orders", partition=0))

    assert "Owner of orders-0" in page and "Owner harbour" in page and "Nobody waits for it." in page
    world.later()
    said = words(world.get("/owner", group="", topic="orders", partition=0))
    assert "Nobody. The last generation was" in said and "The owner released it." in said


def test_a_name_of_the_applications_own_is_shown_by_its_group(world: ConsoleWorld) -> None:
    filled(world)
    with world.cluster.lease("guards", ["the/gate <b>"], owner_id="watchman"):
        assert "the/gate <b> a name guards ● Owned watchman" in words(world.get("/owners"))
        said = words(world.get("/owner", group="guards", name="the/gate <b>"))

    assert "Group guards" in said and "Owner watchman" in said


def test_where_nobody_is_known_the_page_says_so(world: ConsoleWorld) -> None:
    filled(world)

    assert "No broker knows an owner here" in words(
        world.get("/owner", 404, group="", topic="orders", partition=1)
    )


def test_brokers_without_ownership_are_an_ordinary_sight(world: ConsoleWorld) -> None:
    """Apache Kafka's brokers announce no feature of ours, and know none of these requests."""
    filled(world)
    for broker in world.cluster.brokers.values():
        broker.features = {}

    assert "These brokers know no owners" in words(world.get("/owners"))
    assert '<th scope="col">Owner</th>' not in world.get("/topic", name="orders")
    assert "The cluster is healthy" in world.get("/")


HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202egnp.exe"


class _Tags(HTMLParser):
    """Gathers the tags of a page, and its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def test_hostile_names_keys_and_values_are_only_text(world: ConsoleWorld) -> None:
    filled(world)
    world.cluster.write(
        Message("orders", key=HOSTILE, value=HOSTILE, partition=0, headers=[(HOSTILE, HOSTILE.encode())])
    )
    with (
        world.cluster.lease(HOSTILE, [HOSTILE], owner_id=HOSTILE),
        world.cluster.consumer({"group.id": HOSTILE, "client.id": HOSTILE}) as consumer,
    ):
        consumer.add_topic("orders")
        consumer.poll(1_000)
        pages = [
            world.get("/groups"), world.get("/group", name=HOSTILE), world.get("/owners"),
            world.get("/owner", group=HOSTILE, name=HOSTILE),
            world.get("/messages", topic="orders", key=HOSTILE), world.get("/topics", find=HOSTILE),
            world.get("/message", topic="orders", partition=0, offset=20),
            world.get("/topic", 404, name=HOSTILE),
            world.get("/messages", 400, topic="orders", partition=HOSTILE),
        ]  # fmt: skip

    for page in pages:
        found = _Tags()
        found.feed(page)
        assert "img" not in found.tags
        assert not [name for name, _ in found.attributes if name.startswith("on") or name == "style"]
        assert "\u202e" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in pages[0]


def test_the_pages_run_nothing_inline_and_load_nothing_foreign(world: ConsoleWorld) -> None:
    filled(world)
    for path in (
        *PAGES,
        "/topic?name=orders",
        "/messages?topic=orders",
        "/message?topic=orders&partition=0&offset=1",
    ):
        answer = world.browser.get(path)
        found = _Tags()
        found.feed(answer.text)
        places = [value for name, value in found.attributes if name in ("src", "href", "action")]
        assert places and all(value.startswith(("/", "#")) for value in places)
        assert "style" not in found.tags
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy


def test_every_field_of_a_form_has_a_label_and_every_table_has_headers(world: ConsoleWorld) -> None:
    filled(world)
    for path in (*PAGES, "/topic?name=orders", "/messages?topic=orders"):
        page = world.get(path)
        found = _Tags()
        found.feed(page)
        labelled = {value for name, value in found.attributes if name == "for"}
        for field in ("find", "order", "topic", "partition", "from", "at", "key", "count"):
            assert f'id="{field}"' not in page or field in labelled
        assert page.count("<thead>") == page.count("<table>")
        assert "<main" in page and "<nav aria-label=" in page and 'aria-live="polite"' in page


@pytest.mark.parametrize("name", ["console.css", "console.js", "icon.svg"])
def test_the_assets_are_served(world: ConsoleWorld, name: str) -> None:
    assert world.browser.get(f"/static/{name}").status_code == 200


def test_no_file_beside_the_assets_is_served(world: ConsoleWorld) -> None:
    for path in ("/static/../parts.py", "/static/%2e%2e/parts.py", "/static/"):
        assert world.browser.get(path).status_code == 404


def test_an_address_that_is_none_is_explained(world: ConsoleWorld) -> None:
    assert "There is no such page" in world.get("/nothing/here", 404)
