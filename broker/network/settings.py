"""The settings of the network, one row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast_log.clients.settings import Setting, SettingType

_NO_LIMIT = 2**31 - 1

CREATION_RATE = Setting(
    "max.connection.creation.rate",
    SettingType.INT,
    _NO_LIMIT,
    "Maximum number of new connections per second to this broker. The broker reads from further ones later, "
    "and closes those that would have to wait for more than 30 s. "
    "`listener.name.<name>.max.connection.creation.rate`, with the listener's name in lower case, limits one "
    "listener. A listener for brokers alone has no limit but its own.",
    minimum=1,
    dynamic=True,
)


def listener_creation_rate(listener: str) -> str:
    """Name of the setting that limits new connections to a listener."""
    return f"listener.name.{listener.lower()}.{CREATION_RATE.name}"


def listener_settings(listeners: Sequence[str]) -> tuple[Setting, ...]:
    """The rows of the settings that each listener may have for itself. `listeners` are as in the setting."""
    names = [listener.partition("://")[0] for listener in listeners]
    doc = "Maximum number of new connections per second to this listener. Unset: no limit of its own."
    return tuple(
        replace(CREATION_RATE, name=listener_creation_rate(name), default=None, doc=doc) for name in names
    )


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "listeners",
        SettingType.LIST,
        ("PLAINTEXT://:9092",),
        "Addresses at which the broker listens: NAME://host:port, comma-separated, each with a name and a "
        "port of its own. An empty host is every interface; port 0 takes a free port. IPv6 hosts go in "
        "brackets.",
    ),
    Setting(
        "advertised.listeners",
        SettingType.LIST,
        None,
        "Addresses that the broker gives to clients and other brokers, in the form of `listeners` and with "
        "the same names. Unset: `listeners`, with this machine's name in place of an empty host.",
    ),
    Setting(
        "listener.security.protocol.map",
        SettingType.LIST,
        (
            "PLAINTEXT:PLAINTEXT",
            "INTERNAL:PLAINTEXT",
            "SSL:SSL",
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "SASL_SSL:SASL_SSL",
        ),
        "Security protocol of each listener name, as NAME:PROTOCOL pairs. Listeners of this broker speak "
        "PLAINTEXT, SSL, which is TLS, SASL_PLAINTEXT and SASL_SSL.",
    ),
    Setting(
        "inter.broker.listener.name",
        SettingType.STRING,
        None,
        "Name of the listener through which brokers connect to each other, and for which they need no "
        "`cluster.secret.file`: give it an address that clients cannot reach. Unset: the first advertised "
        "one, which brokers then share with clients. If it is INTERNAL and `listeners` has only others, "
        "which are on loopback, the broker opens INTERNAL there on a free port; if they are not, brokers "
        "share the first.",
    ),
    Setting(
        "cluster.secret.file",
        SettingType.STRING,
        None,
        "File with the secret by which the brokers of a cluster know each other, of at least 32 characters; "
        "the same for all of them. Then only a connection that has proved that it has the secret counts as "
        "a broker's, whatever its listener. Of several lines the broker uses the first, and accepts all. "
        "Unset: every connection to the listener `inter.broker.listener.name` counts as a broker's.",
    ),
    Setting(
        "broker.listeners.trusted",
        SettingType.LIST,
        None,
        "Names of listeners on which every connection counts as a broker's, without the cluster's secret. "
        "Set it only while the brokers of a running cluster change to another listener or to a secret, one "
        "after the other. Unset: `inter.broker.listener.name`, or none with `cluster.secret.file`.",
    ),
    Setting(
        "cluster.alter.listeners",
        SettingType.LIST,
        (),
        "Names of the listeners whose clients may alter what concerns every client: client quotas, settings "
        "of brokers, the placement of partitions, their leaders, and transactions of others (they may abort "
        "them). Elsewhere such requests are refused with CLUSTER_AUTHORIZATION_FAILED. Empty: clients of all "
        "listeners may.",
    ),
    Setting(
        "socket.request.max.bytes",
        SettingType.INT,
        100 * 1024 * 1024,
        "Maximum size of a request in bytes. The broker closes a connection that announces a larger one. A "
        "client's request that brings no records may have 16 MiB.",
        minimum=1,
    ),
    Setting(
        "socket.request.max.elements",
        SettingType.INT,
        20_000,
        "Maximum number of elements in all lists of one client request, such as topics, partitions and "
        "settings; eight plain numbers count as one. It limits the memory for a decoded request, in which an "
        "element of a few bytes takes some hundred, and the time for decoding it, about a microsecond for "
        "each; others are served meanwhile. The broker closes the connection of a client that sends more. "
        "Requests that are not handled in parts, such as those of administrators, may have 2,000. Requests "
        "between brokers may have 25 times as many as the setting; a cluster with more partitions than that "
        "needs a higher value.",
        minimum=1000,
    ),
    Setting(
        "socket.send.buffer.bytes",
        SettingType.INT,
        100 * 1024,
        "Size in bytes of the send buffer of the broker's sockets (SO_SNDBUF). A connection has about twice "
        "as many bytes in flight: clients far away need more for their full speed, the bytes of a second "
        "times the round trip in seconds. -1: the system adapts the size for each connection. It then holds "
        "megabytes for each reader of much, and takes more processor time to send them.",
        minimum=-1,
    ),
    Setting(
        "socket.receive.buffer.bytes",
        SettingType.INT,
        -1,
        "Size in bytes of the receive buffer of the broker's sockets (SO_RCVBUF). -1: the system adapts the "
        "size for each connection.",
        minimum=-1,
    ),
    Setting(
        "socket.listen.backlog.size",
        SettingType.INT,
        50,
        "Maximum number of new connections that wait at a listener for the broker to accept them.",
        minimum=1,
    ),
    Setting(
        "connections.max.idle.ms",
        SettingType.LONG,
        10 * 60 * 1000,
        "Time in ms after which the broker closes an idle connection: nothing sent or received, and no "
        "response due. -1: idle connections stay open.",
        minimum=-1,
    ),
    Setting(
        "max.connections",
        SettingType.INT,
        _NO_LIMIT,
        "Maximum number of open connections to this broker; the limit of open files may allow fewer. For a "
        "further one the broker closes one that has not sent a valid request, or else the one that was idle "
        "for the longest time; if all are in use, it closes the new one. One in eight, up to 64, is for the "
        "listener `inter.broker.listener.name`, if clients have another one.",
        minimum=0,
    ),
    Setting(
        "max.connections.per.ip",
        SettingType.INT,
        None,
        "Maximum number of open connections from one IP address, or from the IPv6 addresses that share 64 "
        "bits; what the broker closes for a further one is as for `max.connections`. Connections to a "
        "listener for brokers alone do not count. Unset: half of those that `max.connections` and the limit "
        "of open files allow.",
        minimum=0,
    ),
    CREATION_RATE,
    Setting(
        "connection.refused.delay.max.ms",
        SettingType.INT,
        1000,
        "Maximum time in ms by which the broker delays the close of a connection whose request it refuses. "
        "It delays only connections from an address that has had more than 100 refused, beyond 2 a second. "
        "0: no delay.",
        minimum=0,
    ),
    Setting(
        "connection.max.buffered.bytes",
        SettingType.LONG,
        16 * 1024 * 1024,
        "Maximum bytes of unanswered requests and unsent responses of one connection. Above it the broker "
        "stops reading from the connection until there are fewer; a single larger request or response still "
        "passes.",
        minimum=1,
    ),
    Setting(
        "queued.max.request.bytes",
        SettingType.LONG,
        128 * 1024 * 1024,
        "Maximum bytes of requests, on all connections together, that the broker is receiving or handling. "
        "It receives further bytes, in the order of their arrival, once there is room. A request below "
        "32 KiB always passes, and one larger than this limit passes alone. The listener "
        "`inter.broker.listener.name` has as much again for itself, if it is not the only one. -1: no limit.",
        minimum=-1,
    ),
    Setting(
        "socket.request.receive.timeout.ms",
        SettingType.INT,
        30_000,
        "Maximum time in ms to receive a request of 32 KiB or more, from its first byte to its last. Then "
        "the broker closes the connection. While other requests wait for `queued.max.request.bytes`, the "
        "request that holds the most of it has 2 s.",
        minimum=1000,
    ),
    Setting(
        "answer.max.bytes",
        SettingType.LONG,
        16 * 1024 * 1024,
        "Maximum bytes of the answer to one request that lists things: topics, settings, producers, owners. "
        "What would be beyond it gets POLICY_VIOLATION; the client asks for fewer things in one request.",
        minimum=1024,
    ),
    Setting(
        "queued.max.answer.bytes",
        SettingType.LONG,
        64 * 1024 * 1024,
        "Maximum bytes of long answers that list things, on all connections together, that the broker is "
        "making or that clients have not read. Above it the broker closes the connection with the most "
        "unread bytes, first among those that have read nothing for a second.",
        minimum=1024,
    ),
    Setting(
        "connection.max.in.flight.requests",
        SettingType.INT,
        100,
        "Maximum number of unanswered requests of one connection. At the limit the broker stops reading "
        "from the connection until it has sent a response. So it also limits the requests that wait for "
        "something else: for other replicas, for other members of a group, for an owner. Of those that wait "
        "for records to fetch a connection has 16; one more ends the wait of the oldest.",
        minimum=1,
    ),
)
"""Rows of the settings of the network, in the order of the documentation."""
