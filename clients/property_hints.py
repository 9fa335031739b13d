"""What to write instead of a property that a client does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast_log.clients.settings import closest_name

_ARGUMENTS = (
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "partitioner",
    "on.event",
    "rebalance.listener",
)
_OF_OTHER_CLIENTS = {
    "metadata.broker.list": "bootstrap.servers",
    "broker.list": "bootstrap.servers",
    "brokers": "bootstrap.servers",
    "hosts": "bootstrap.servers",
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "queue.buffering.max.kbytes": "buffer.memory",
    "batch.num.messages": "batch.size",
    "message.max.bytes": "max.request.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "consumer.timeout.ms": "the timeout of poll()",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.cafile": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.keyfile": "ssl.keystore.location",
    "ssl.ciphers": "ssl.cipher.suites",
    "ssl.certfile": "ssl.keystore.location",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
}
"""Names of other clients' properties, and what has that meaning here."""
_UNSUPPORTED = {
    "sasl.kerberos.": "there is no GSSAPI (Kerberos): set sasl.mechanism to SCRAM-SHA-512",
}


def hint_for(key: str, names: Mapping[str, object], other_clients: Mapping[str, Iterable[str]]) -> str:
    """What to write instead of the property `key`; empty if nothing comes near.

    `names` are the client's own properties; `other_clients` has those of other kinds of client, by the kind.
    """
    dotted = key.replace("_", ".")
    if dotted in _ARGUMENTS:
        return f"it is an argument of the constructor, {dotted.replace('.', '_')}=..., and no property"
    meant = _OF_OTHER_CLIENTS.get(dotted)
    if meant is not None and (meant in names or "(" in meant):
        return f"did you mean {meant}?"
    closest = closest_name(dotted, names) or _by_words(dotted, names)
    if closest is not None:
        return f"did you mean {closest}?"
    owners = [kind for kind, theirs in other_clients.items() if dotted in theirs]
    if owners:
        return f"it is one of {' and '.join(owners)}"
    return next((why for start, why in _UNSUPPORTED.items() if dotted.startswith(start)), "")


def _by_words(dotted: str, names: Iterable[str]) -> str | None:
    """The only name that has all words of `dotted`; None if there is none, or more than one."""
    words = set(dotted.split("."))
    found = [name for name in names if words <= set(name.split("."))]
    return found[0] if len(found) == 1 else None
