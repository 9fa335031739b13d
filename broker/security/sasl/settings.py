"""The settings of SASL, one row each. Some may also be set for one listener, or for one of its mechanisms:
`listener.name.<listener>.<setting>`, `listener.name.<listener>.<mechanism>.<setting>`, both in lower case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from holdfast_log.clients.settings import Setting, SettingType
from holdfast_log.protocol.sasl.mechanisms import MECHANISMS

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "sasl.enabled.mechanisms",
        SettingType.LIST,
        None,
        "Mechanisms by which clients of SASL listeners authenticate: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER. Needed for a SASL listener; `listener.name.<listener>.sasl.enabled.mechanisms`, with "
        "the listener's name in lower case, is for one of them.",
        choices=MECHANISMS,
    ),
    Setting(
        "sasl.jaas.config",
        SettingType.PASSWORD,
        None,
        "Login module of a mechanism, in Kafka's syntax. It is set for a mechanism of a listener: "
        "`listener.name.<listener>.<mechanism>.sasl.jaas.config`, both in lower case. Of PLAIN it has the "
        'users, user_NAME="PASSWORD"; of the mechanism by which brokers authenticate to each other, their '
        "own username and password.",
    ),
    Setting(
        "sasl.mechanism.inter.broker.protocol",
        SettingType.STRING,
        None,
        "Mechanism by which this broker authenticates to others, if `inter.broker.listener.name` is a SASL "
        "listener. The mechanism's sasl.jaas.config of that listener has username and password.",
        choices=MECHANISMS,
    ),
    Setting(
        "broker.users",
        SettingType.LIST,
        None,
        "Users who count as brokers once they have authenticated at the listener "
        "`inter.broker.listener.name`, without the prefix User:. Without effect with `cluster.secret.file`, "
        "which then proves a broker. Unset: the user as whom this broker authenticates to others.",
    ),
    Setting(
        "sasl.server.max.receive.size",
        SettingType.INT,
        64 * 1024,
        "Maximum size in bytes of a request to a SASL listener before the client has authenticated. Tokens "
        "of OAUTHBEARER may need more.",
        minimum=1024,
    ),
    Setting(
        "sasl.authentication.timeout.ms",
        SettingType.INT,
        10_000,
        "Maximum time in ms from a connection to a SASL listener to its authentication. Then the broker "
        "closes it.",
        minimum=1,
    ),
    Setting(
        "connection.failed.authentication.delay.ms",
        SettingType.INT,
        100,
        "Time in ms after which the broker answers a failed authentication, and closes the connection.",
        minimum=0,
    ),
    Setting(
        "connections.max.reauth.ms",
        SettingType.LONG,
        0,
        "Time in ms after which a client has to authenticate again, by a request on its connection "
        "(KIP-368). The broker closes the connection of one that sends anything else after that. 0: never, "
        "as long as the token of OAUTHBEARER is valid. It can be set for one listener or mechanism.",
        minimum=0,
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        SettingType.STRING,
        None,
        "Where the public keys of who issues tokens are (JWKS), for OAUTHBEARER: an https: or file: URL. "
        "Needs the extra `oauth`.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.truststore.location",
        SettingType.STRING,
        None,
        "PEM file with the authorities that may have signed the certificate of who publishes these keys. It "
        "is read at each fetch. Unset: those of the system.",
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        SettingType.LONG,
        3_600_000,
        "Age in ms at which the broker fetches the keys again. It also does when a token names a key that it "
        "does not know, at most once in 10 s.",
        minimum=1,
    ),
    Setting(
        "sasl.oauthbearer.expected.audience",
        SettingType.LIST,
        None,
        "A token must be for one of these (claim aud). Unset: for anybody, so a token that its user has "
        "given to another service is accepted too.",
    ),
    Setting(
        "sasl.oauthbearer.expected.issuer",
        SettingType.STRING,
        None,
        "A token must have this issuer (claim iss). Unset: any whose key is known.",
    ),
    Setting(
        "sasl.oauthbearer.clock.skew.seconds",
        SettingType.INT,
        30,
        "Time in seconds by which the clocks of this broker and of who issues tokens may differ.",
        minimum=0,
        maximum=3600,
    ),
    Setting(
        "sasl.oauthbearer.sub.claim.name",
        SettingType.STRING,
        "sub",
        "The claim of a token that has the user's name.",
    ),
    Setting(
        "scram.users.max",
        SettingType.INT,
        10_000,
        "Maximum number of users with SCRAM credentials. Every broker keeps all of them in memory.",
        minimum=1,
    ),
)
"""Rows of the settings of SASL, in the order of the documentation."""

_OF_TOKENS = tuple(row.name for row in SETTINGS if row.name.startswith("sasl.oauthbearer."))
_OF_LISTENERS = ("sasl.enabled.mechanisms", "connections.max.reauth.ms", *_OF_TOKENS)
_OF_MECHANISMS = ("sasl.jaas.config", "connections.max.reauth.ms")


def is_sasl(protocol: str) -> bool:
    """Whether listeners of this security protocol want SASL."""
    return protocol.startswith("SASL_")


def listener_rows(listeners: Iterable[str]) -> tuple[Setting, ...]:
    """The rows of the settings that each listener, and each of its mechanisms, may have for itself.
    `listeners` are as in the setting."""
    rows = {row.name: row for row in SETTINGS}
    found = []
    for listener in listeners:
        prefix = _prefix(listener.partition("://")[0])
        wanted = [f"{prefix}{name}" for name in _OF_LISTENERS]
        wanted += [f"{prefix}{each.lower()}.{name}" for each in MECHANISMS for name in _OF_MECHANISMS]
        wanted += [f"{prefix}oauthbearer.{name}" for name in _OF_TOKENS]
        for full in wanted:
            name = next(name for name in (*_OF_LISTENERS, *_OF_MECHANISMS) if full.endswith("." + name))
            found.append(replace(rows[name], name=full, default=None))
    return tuple(found)


def value_for(settings: Mapping[str, Any], name: str, listener: str, mechanism: str | None = None) -> Any:
    """The value of a setting for a listener, or for one of its mechanisms: the most special one."""
    prefix = _prefix(listener)
    names = [] if mechanism is None else [f"{prefix}{mechanism.lower()}.{name}"]
    for each in (*names, f"{prefix}{name}"):
        value = settings.get(each)
        if value is not None:
            return value
    return settings[name]


def jaas_setting(listener: str, mechanism: str) -> str:
    """The name of the setting with a mechanism's login module."""
    return f"{_prefix(listener)}{mechanism.lower()}.sasl.jaas.config"


def _prefix(listener: str) -> str:
    return f"listener.name.{listener.lower()}."
