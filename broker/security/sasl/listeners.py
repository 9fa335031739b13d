"""What the settings say of each SASL listener: its mechanisms, their users, and how brokers log in."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from holdfast_log.broker.network.endpoints import Endpoints
from holdfast_log.broker.security.sasl.oauthbearer import TokenRules
from holdfast_log.broker.security.sasl.plain import plain_users
from holdfast_log.broker.security.sasl.settings import is_sasl, jaas_setting, value_for
from holdfast_log.clients.settings import SettingError
from holdfast_log.protocol.sasl.jaas import JaasError, LoginModule, parse_jaas
from holdfast_log.protocol.sasl.mechanisms import OAUTHBEARER, PLAIN
from holdfast_log.protocol.sasl.scram import SCRAM_MECHANISMS

_KEY_URLS = ("https://", "file:/", "http://127.0.0.1:", "http://localhost:")


@dataclass(frozen=True, slots=True, repr=False)
class SaslMechanism:
    """One mechanism of a listener. `users` are those of PLAIN, with their passwords. A client has to
    authenticate again after `reauth_ms`; 0: never."""

    name: str
    users: Mapping[str, str]
    reauth_ms: int
    tokens: TokenRules | None = None
    """Which tokens of OAUTHBEARER are valid."""


@dataclass(frozen=True, slots=True)
class SaslListener:
    """One SASL listener, with its mechanisms in the order of the settings."""

    name: str
    mechanisms: Mapping[str, SaslMechanism]


@dataclass(frozen=True, slots=True, repr=False)
class BrokerLogin:
    """How this broker authenticates to the others."""

    mechanism: str
    user: str
    password: str


@dataclass(frozen=True, slots=True)
class SaslSetup:
    """All SASL listeners by name. `login` is None unless brokers use one of them; `broker_users` count as
    brokers."""

    listeners: Mapping[str, SaslListener] = field(default_factory=dict)
    login: BrokerLogin | None = None
    broker_users: frozenset[str] = frozenset()

    @property
    def has_scram(self) -> bool:
        """Whether clients of any listener may use SCRAM."""
        return any(name in SCRAM_MECHANISMS for each in self.listeners.values() for name in each.mechanisms)


def sasl_setup(settings: Mapping[str, Any], endpoints: Endpoints) -> SaslSetup:
    """Raises `SettingError`."""
    listeners = {
        endpoint.name: _listener(settings, endpoint.name)
        for endpoint in endpoints.listeners
        if is_sasl(endpoint.protocol)
    }
    inter_broker = listeners.get(endpoints.inter_broker)
    login = None if inter_broker is None else _login(settings, inter_broker)
    given = settings["broker.users"]
    users = frozenset(() if login is None else (login.user,)) if given is None else frozenset(given)
    return SaslSetup(listeners, login, users)


def _listener(settings: Mapping[str, Any], name: str) -> SaslListener:
    enabled = value_for(settings, "sasl.enabled.mechanisms", name)
    if not enabled:
        raise SettingError(
            f"the listener {name} wants SASL, and sasl.enabled.mechanisms is missing: set it to one or more "
            "of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"
        )
    return SaslListener(name, {each: _mechanism(settings, name, each) for each in enabled})


def _mechanism(settings: Mapping[str, Any], listener: str, name: str) -> SaslMechanism:
    users = {}
    if name == PLAIN:
        module = _module(settings, listener, name)
        users = {} if module is None else plain_users(module.options)
        if not users:
            raise SettingError(
                f"{jaas_setting(listener, name)} has no users: set it to "
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD";'
            )
        if not all(users.values()):
            raise SettingError(f"{jaas_setting(listener, name)} has a user with an empty password")
    reauth_ms = value_for(settings, "connections.max.reauth.ms", listener, name)
    return SaslMechanism(name, users, reauth_ms, _rules(settings, listener) if name == OAUTHBEARER else None)


def _rules(settings: Mapping[str, Any], listener: str) -> TokenRules:
    def value(name: str) -> Any:
        return value_for(settings, f"sasl.oauthbearer.{name}", listener, OAUTHBEARER)

    url = value("jwks.endpoint.url")
    if url is None or not url.startswith(_KEY_URLS):
        raise SettingError(
            f"sasl.oauthbearer.jwks.endpoint.url={url!r} is not allowed: the listener {listener} has "
            "OAUTHBEARER, so set it to the https: or file: URL of the keys with which tokens are signed"
        )
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise SettingError(
            "sasl.enabled.mechanisms has OAUTHBEARER, which needs PyJWT: install holdfast-log[oauth]"
        )
    return TokenRules(
        url,
        value("jwks.endpoint.refresh.ms"),
        value("expected.audience") or (),
        value("expected.issuer"),
        value("clock.skew.seconds"),
        value("sub.claim.name"),
        _truststore(value("jwks.endpoint.truststore.location")),
    )


def _truststore(path: str | None) -> str | None:
    if path is not None:
        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:  # ssl.SSLError is one.
            raise SettingError(
                f"sasl.oauthbearer.jwks.endpoint.truststore.location={path!r} is not allowed: it is no PEM "
                f"file of certificates that can be read: {error}"
            ) from None
    return path


def _module(settings: Mapping[str, Any], listener: str, mechanism: str) -> LoginModule | None:
    name = jaas_setting(listener, mechanism)
    text = settings.get(name)
    if text is None:
        return None
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise SettingError(f"{name} is not allowed: {error}") from None
    if mechanism not in module.mechanisms:
        raise SettingError(f"{name} is not allowed: {module.name} is not the login module of {mechanism}")
    return module


def _login(settings: Mapping[str, Any], listener: SaslListener) -> BrokerLogin:
    mechanism = settings["sasl.mechanism.inter.broker.protocol"]
    if mechanism is None:
        raise SettingError(
            f"brokers use the listener {listener.name}, which wants SASL, and "
            "sasl.mechanism.inter.broker.protocol is missing: set it to one of "
            f"{', '.join(listener.mechanisms)}"
        )
    if mechanism not in listener.mechanisms:
        raise SettingError(
            f"sasl.mechanism.inter.broker.protocol={mechanism!r} is not allowed: the listener "
            f"{listener.name} has only {', '.join(listener.mechanisms)} (sasl.enabled.mechanisms)"
        )
    if mechanism == OAUTHBEARER:
        raise SettingError(
            "sasl.mechanism.inter.broker.protocol='OAUTHBEARER' is not allowed: brokers authenticate to each "
            "other by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    module = _module(settings, listener.name, mechanism)
    options = {} if module is None else module.options
    if not options.get("username") or not options.get("password"):
        raise SettingError(
            f"{jaas_setting(listener.name, mechanism)} has no username and password: this broker needs them "
            "to authenticate to the others"
        )
    return BrokerLogin(mechanism, options["username"], options["password"])
