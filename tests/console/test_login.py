"""The login in front of a real broker: a SASL user and password let people in, with their own rights."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from holdfast_log import Admin, Message, NewTopic, Producer
from holdfast_log.broker.tools.broker_process import free_port
from holdfast_log.clients.config import ADMIN_ROWS
from tests.cluster import Cluster
from tests.console.served import LONG_SESSION, running_console
from tests.console.world import token_in, words
from tests.integration.waiting import until

USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" '
    'password="of brokers" user_broker="of brokers" user_console="of the console" user_ada="engine=1";'
)
CLIENT = """\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="console" password="of the console";
"""


pytestmark = pytest.mark.skipif(
    "sasl.mechanism" not in {row.name for row in ADMIN_ROWS}, reason="the clients do not speak SASL"
)


@pytest.fixture(scope="module")
def console(cluster_of_module: Cluster) -> Iterator[str]:
    """The address of a console with a login, in front of a broker that lets users in by SASL."""
    broker, port = cluster_of_module.add(), free_port()
    broker.properties |= {
        **LONG_SESSION,
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://127.0.0.1:{port},"
            f"INTERNAL://127.0.0.1:{broker.brokers_port}"
        ),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": USERS,
    }
    broker.start()
    broker.wait_ready(1)
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("orders", 1, 1)])
    with Producer({"bootstrap.servers": broker.address}) as producer:
        producer.send(Message("orders", value="twelve boats")).result()
    with running_console(f"127.0.0.1:{port}", "--login", properties=CLIENT) as address:
        yield address
    cluster_of_module.show()


@pytest.fixture
def browser(console: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=console, timeout=300, trust_env=False) as client:
        yield client


def log_in(browser: httpx2.Client, user: str, password: str) -> httpx2.Response:
    token = token_in(browser.get("/login").text)
    return browser.post(
        "/login?next=/topics",
        data={"token": token, "user": user, "password": password},
        headers={"Origin": str(browser.base_url).rstrip("/")},
    )


def test_a_user_of_the_cluster_gets_in_and_sees_messages(browser: httpx2.Client) -> None:
    assert browser.get("/topics").headers["location"] == "/login?next=%2Ftopics"

    assert log_in(browser, "ada", "engine=1").headers["location"] == "/topics"

    assert "orders" in words(browser.get("/topics").text) and "ada" in words(browser.get("/topics").text)
    # Reading for a page ends after some seconds, which a busy machine may need before the first message.
    until(lambda: "twelve boats" in words(browser.get("/messages?topic=orders").text))
    assert browser.get("/configs?topic=orders").status_code == 200


@pytest.mark.parametrize(("user", "password"), [("ada", "engine"), ("nobody", "engine=1"), ("ada", "")])
def test_nobody_else_gets_in(browser: httpx2.Client, user: str, password: str) -> None:
    answer = log_in(browser, user, password)

    assert answer.status_code == 403 and 'role="alert"' in answer.text
    assert browser.get("/topics").status_code == 303
