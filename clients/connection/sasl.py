"""SASL from a client's settings: on each connection, the requests that prove who the client is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holdfast_log.clients.connection.conversation import Authenticator
from holdfast_log.clients.errors import ConfigError
from holdfast_log.protocol.sasl.callers import (
    OAuthBearerCaller,
    PlainCaller,
    SaslCaller,
    ScramCaller,
    ScramPasswords,
)
from holdfast_log.protocol.sasl.exchange import sasl_exchange
from holdfast_log.protocol.sasl.jaas import JaasError, parse_jaas
from holdfast_log.protocol.sasl.mechanisms import OAUTHBEARER, PLAIN, SaslError
from holdfast_log.protocol.sasl.scram import SCRAM_MECHANISMS

_TOKEN_CHARACTERS_MAX = 256 * 1024


def sasl_authenticator(settings: Mapping[str, Any]) -> Authenticator:
    """The authenticator for `security.protocol=SASL_…`. Raises ConfigError if a setting is missing."""
    begin = _callers(settings)
    return lambda: sasl_exchange(begin())


def _callers(settings: Mapping[str, Any]) -> Callable[[], SaslCaller]:
    protocol, mechanism = settings["security.protocol"], settings["sasl.mechanism"]
    if mechanism is None:
        raise ConfigError(
            f"sasl.mechanism is missing: with security.protocol={protocol} set it to a mechanism that the "
            "brokers offer, such as SCRAM-SHA-512"
        )
    if mechanism == OAUTHBEARER:
        token = _tokens(settings)
        return lambda: OAuthBearerCaller(token)
    user, password = _user(settings, mechanism)
    if mechanism == PLAIN:
        return lambda: PlainCaller(user, password)
    passwords = ScramPasswords(SCRAM_MECHANISMS[mechanism], user, password)
    return lambda: ScramCaller(passwords)


def _tokens(settings: Mapping[str, Any]) -> Callable[[], str]:
    """What returns a token that is valid now. Raises ConfigError."""
    path, provider = settings["sasl.oauthbearer.token.file"], settings["sasl.oauthbearer.token.provider"]
    if (path is None) == (provider is None):
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER needs tokens: set either sasl.oauthbearer.token.file or "
            "sasl.oauthbearer.token.provider"
        )
    if path is not None:
        return partial(_token_in, path)
    module, _, function = provider.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"sasl.oauthbearer.token.provider={provider!r} is not allowed: expected module:function ({error})"
        ) from None
    return partial(_token_of, provider, found)


def _token_in(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read(_TOKEN_CHARACTERS_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SaslError(f"sasl.oauthbearer.token.file cannot be read: {error}") from None


def _token_of(provider: str, function: Callable[[], Any]) -> str:
    try:
        token = function()
    except Exception as error:
        raise SaslError(f"{provider} raised {type(error).__name__}: {error}") from error
    if not isinstance(token, str):
        raise SaslError(f"{provider} has returned {type(token).__name__}, and no token (str)")
    return token


def _user(settings: Mapping[str, Any], mechanism: str) -> tuple[str, str]:
    """The name and password of the user."""
    user, password = settings["sasl.username"], settings["sasl.password"]
    jaas = settings["sasl.jaas.config"]
    if jaas is not None:
        if user is not None or password is not None:
            raise ConfigError("set either sasl.jaas.config, or sasl.username and sasl.password")
        user, password = _user_in(jaas, mechanism)
    if not user or not password:
        raise ConfigError(
            f"sasl.mechanism={mechanism} needs a user: set sasl.username and sasl.password, or "
            "sasl.jaas.config with username and password"
        )
    return user, password


def _user_in(jaas: str, mechanism: str) -> tuple[str | None, str | None]:
    try:
        module = parse_jaas(jaas)
    except JaasError as error:
        raise ConfigError(f"sasl.jaas.config is not allowed: {error}") from None
    if mechanism not in module.mechanisms:
        raise ConfigError(
            f"sasl.jaas.config is not allowed: {module.name} is not the login module of "
            f"sasl.mechanism={mechanism}"
        )
    return module.options.get("username"), module.options.get("password")
