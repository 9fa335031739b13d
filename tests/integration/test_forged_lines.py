"""Clients cannot write lines of their own into a broker's log, nor control the terminal that shows it."""

from __future__ import annotations

from holdfast_log.clients.admin.admin import Admin
from holdfast_log.clients.admin.topics import NewTopic
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.cluster import BackgroundBroker, Cluster
from tests.integration import clients
from tests.integration.owners import Owner, produce_request
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until

FORGED = "[2031-01-01 00:00:00,000] INFO all is well (holdfast_log.broker)"
HOSTILE = f"evil\n{FORGED}\r\x1b[2J\x1b]0;owned\x07\u2028{FORGED}\x85\u202e\v\f"
ESCAPED = r"evil\n[2031-01-01 00:00:00,000] INFO all is well"


def check_lines(broker: BackgroundBroker) -> None:
    """Each line of the log is a record of the broker, or an indented line of a traceback."""
    text = broker.log_path.read_bytes().decode()
    for line in text.splitlines():
        assert line.startswith(("[", "    ")) and not line.startswith("[2031"), line
        assert line.isprintable(), line


def test_a_topic_name_that_is_refused_without_an_answer(broker: BackgroundBroker) -> None:
    with RawSocket(broker.port) as client:
        client.send_request(produce_request(HOSTILE, acks=0))
        assert client.is_hung_up()

    until(lambda: f"its batch with acks=0 for {ESCAPED}" in broker.log)
    check_lines(broker)


def test_an_owner_id_in_the_log_of_a_refused_write(broker: BackgroundBroker, topic: str) -> None:
    clients.create_topic(broker.address, topic)
    owner = Owner(broker.port, HOSTILE)
    assert owner.access_to(topic, ProducerAccessMode.EXCLUSIVE).error_code == ErrorCode.NONE

    refusal = clients.produce_error(broker.address, topic, **{"client.id": "a\nb\x1b[2J"})

    assert refusal == ErrorCode.POLICY_VIOLATION
    until(lambda: "Refused a write of client" in broker.log)
    assert f"{ESCAPED}" in next(line for line in broker.log.splitlines() if "Refused a write" in line)
    check_lines(broker)
    owner.socket.close()


def test_names_of_clients_and_groups(broker: BackgroundBroker, topic: str) -> None:
    with Admin({"bootstrap.servers": broker.address, "client.id": HOSTILE}) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, {"retention.ms": "5000"})])
    clients.create_topic(broker.address, f"{topic}-groups")
    with RawSocket(broker.port) as client:
        for name in (HOSTILE, "group"):
            client.ask(
                JoinGroupRequest(
                    group_id=name,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    member_id=HOSTILE,
                    group_instance_id=HOSTILE,
                    protocol_type=HOSTILE,
                    protocols=[JoinGroupRequestProtocol(name=HOSTILE, metadata=HOSTILE.encode())],
                    reason=HOSTILE,
                )
            )

    until(lambda: f"Created topic {topic} " in broker.log)
    check_lines(broker)


def test_a_setting_of_the_file_with_a_line_break(cluster: Cluster) -> None:
    (broker,) = cluster.start(properties={"no.such.setting\n" + FORGED: "x"})

    assert "Ignoring unknown setting no.such.setting\\n[2031" in broker.log
    check_lines(broker)
