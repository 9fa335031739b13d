"""The settings of the network, one row each."""

from __future__ import annotations

from clients.settings import Setting, SettingType

_NO_LIMIT = 2**31 - 1

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "listeners",
        SettingType.LIST,
        ("PLAINTEXT://:9092",),
        "Where the broker listens: NAME://host:port, comma-separated, each with a name and a port of its "
        "own. An empty host is every interface; port 0 takes a free port. IPv6 hosts stand in brackets.",
    ),
    Setting(
        "advertised.listeners",
        SettingType.LIST,
        None,
        "Where clients are told to connect, in the form of `listeners` and by the same names. Unset: what "
        "`listeners` says, with this machine's name in place of an empty host.",
    ),
    Setting(
        "listener.security.protocol.map",
        SettingType.LIST,
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "Which security protocol each listener name speaks, as NAME:PROTOCOL pairs. Listeners of "
        "this broker can only speak PLAINTEXT.",
    ),
    Setting(
        "inter.broker.listener.name",
        SettingType.STRING,
        None,
        "The listener that brokers use among themselves. Unset: the first one that is advertised.",
    ),
    Setting(
        "socket.request.max.bytes",
        SettingType.INT,
        100 * 1024 * 1024,
        "The largest request a client may send; the connection of one that announces more is closed.",
        minimum=1,
    ),
    Setting(
        "socket.request.max.elements",
        SettingType.INT,
        50_000,
        "How many elements the lists of one client's request may have, all together: topics, partitions, "
        "settings and the like, with eight plain numbers for one. An element of a few bytes is an object of "
        "some hundred and is answered one by one, so that this, and not the request's size, bounds what "
        "it costs. The connection of a client that sends more is closed. Requests between brokers may have "
        "ten times as many; a cluster of more partitions than that needs a higher number.",
        minimum=1000,
    ),
    Setting(
        "socket.send.buffer.bytes",
        SettingType.INT,
        -1,
        "The send buffer of the broker's sockets (SO_SNDBUF). -1 leaves it to the system, which fits it to "
        "the connection; a fixed size stops that.",
        minimum=-1,
    ),
    Setting(
        "socket.receive.buffer.bytes",
        SettingType.INT,
        -1,
        "The receive buffer of the broker's sockets (SO_RCVBUF). -1 leaves it to the system, which fits it "
        "to the connection; a fixed size stops that.",
        minimum=-1,
    ),
    Setting(
        "socket.listen.backlog.size",
        SettingType.INT,
        50,
        "How many connections may wait to be accepted.",
        minimum=1,
    ),
    Setting(
        "connections.max.idle.ms",
        SettingType.LONG,
        10 * 60 * 1000,
        "A connection on which nothing has moved for so long, and that waits for no answer, is closed. "
        "-1: never.",
        minimum=-1,
    ),
    Setting(
        "max.connections",
        SettingType.INT,
        _NO_LIMIT,
        "How many connections the broker holds at once; further ones are closed as they arrive.",
        minimum=0,
    ),
    Setting(
        "max.connections.per.ip",
        SettingType.INT,
        _NO_LIMIT,
        "How many connections one address may hold at once; further ones are closed as they arrive.",
        minimum=0,
    ),
    Setting(
        "connection.max.buffered.bytes",
        SettingType.LONG,
        16 * 1024 * 1024,
        "How many bytes of requests being answered and of responses not yet sent one connection may occupy. "
        "Beyond it nothing more is read from that connection until the number has fallen; a single larger "
        "request or response still passes.",
        minimum=1,
    ),
    Setting(
        "queued.max.request.bytes",
        SettingType.LONG,
        256 * 1024 * 1024,
        "How many bytes the requests of all connections may occupy that are still being received, or wait to "
        "be handled. Further ones are not read before there is room, in the order in which they came; a "
        "request of fewer than 32 KiB always passes, and one larger than this passes alone. -1: no limit.",
        minimum=-1,
    ),
    Setting(
        "connection.max.in.flight.requests",
        SettingType.INT,
        1000,
        "How many requests of one connection may await their response before no more are read from it.",
        minimum=1,
    ),
)
"""In the order in which the documentation lists them."""
