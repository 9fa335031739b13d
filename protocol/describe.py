"""docs/protocol.md: tables of all APIs, generated from their declarations.

python -m holdfast_log.protocol.describe > docs/protocol.md
"""

from __future__ import annotations

from holdfast_log.protocol.api import Api
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.fields import NO_VERSIONS, Versions
from holdfast_log.protocol.kafka_apis import KAFKA_3, KAFKA_4, NAMES

FIRST_OWN_KEY = 30000
"""Keys from here on are Holdfast's own APIs; Kafka's stay below 100."""

_INTRODUCTION = """\
# The protocol

Holdfast speaks Kafka's wire protocol. `python -m holdfast_log.protocol.describe` generates these tables from
the declarations in `protocol/messages/`, which also have the fields of each message.

*Versions* can be encoded and decoded. *Advertised* versions are in the ApiVersions response of a broker
that has a handler for the API; the last ones of Produce, EndTxn and TxnOffsetCommit only with
`transaction.version=2`. *Flexible* versions have compact lengths and tagged fields (KIP-482).
The columns of Kafka have the versions that a broker of Apache Kafka 3.9.1 with ZooKeeper, and one of Apache
Kafka 4.1.1, advertise to clients.
"""

_MISSING = """\
## Only in Kafka

A broker closes a connection on which it gets such a request, as Kafka does for an API that it lacks. Clients
do not send any: the ApiVersions response tells them that the API is not there.

| Key | API | Kafka 3.9 | Kafka 4.1 |
| ---: | --- | --- | --- |
"""


def protocol_page() -> str:
    """The whole page, in Markdown."""
    apis = list(APIS.values())
    sections = [
        _section(
            "Between clients and brokers", [a for a in apis if not a.internal and a.key < FIRST_OWN_KEY]
        ),
        _section("Between brokers only", [api for api in apis if api.internal]),
        _section("Holdfast's own", [a for a in apis if not a.internal and a.key >= FIRST_OWN_KEY]),
        _missing(),
    ]
    return "\n".join([_INTRODUCTION, *sections])


def _section(title: str, apis: list[Api]) -> str:
    lines = [
        f"## {title}",
        "",
        "| Key | API | Versions | Advertised | Flexible | Kafka 3.9 | Kafka 4.1 |",
        "| ---: | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_row(api) for api in apis]
    return "\n".join(lines) + "\n"


def _row(api: Api) -> str:
    advertised = NO_VERSIONS if api.internal else api.advertised
    flexible = Versions(max(api.flexible.first, api.min_version), min(api.flexible.last, api.max_version))
    cells = [str(api.key), api.name, *(_shown(versions) for versions in (api.versions, advertised, flexible))]
    return f"| {' | '.join([*cells, *_of_kafka(api.key)])} |"


def _missing() -> str:
    keys = sorted({*KAFKA_3, *KAFKA_4} - {*APIS})
    return _MISSING + "".join(f"| {key} | {NAMES[key]} | {' | '.join(_of_kafka(key))} |\n" for key in keys)


def _of_kafka(key: int) -> list[str]:
    """The versions of both Kafkas."""
    return [_shown(Versions(*kafka[key])) if key in kafka else "none" for kafka in (KAFKA_3, KAFKA_4)]


def _shown(versions: Versions) -> str:
    if versions.first > versions.last:
        return "none"
    return f"{versions.first}" if versions.first == versions.last else f"{versions.first}-{versions.last}"


if __name__ == "__main__":
    print(protocol_page(), end="")
