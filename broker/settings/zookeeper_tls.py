"""TLS between this process and ZooKeeper: the settings `zookeeper.ssl.*`, under Kafka's names, and their
context."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from holdfast_log.clients.references import load_properties
from holdfast_log.clients.settings import Setting, SettingError, Settings, SettingType
from holdfast_log.protocol.tls.contexts import TlsError, connecting_context
from holdfast_log.protocol.tls.names import HTTPS, STORE_TYPES, TLS_VERSIONS
from holdfast_log.protocol.tls.stores import StoreError, read_stores

_PREFIX = "zookeeper."
ENABLE = "zookeeper.ssl.client.enable"
_NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
_NOT_FOR_ZOOKEEPER = (
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.certificates",
)
"""What listeners may have besides, and Kafka has not for ZooKeeper."""


def _check_socket(value: Any) -> None:
    if value not in (None, "", _NETTY):
        raise ValueError(f"{_NETTY}, or nothing")


SETTINGS: tuple[Setting, ...] = (
    Setting(
        ENABLE,
        SettingType.BOOLEAN,
        False,
        "Whether this broker connects to ZooKeeper over TLS: `zookeeper.connect` then names ZooKeeper's "
        "`secureClientPort`. The stores are read at start.",
    ),
    Setting(
        "zookeeper.clientCnxnSocket",
        SettingType.STRING,
        None,
        f"`{_NETTY}` in Kafka's files, where TLS needs it. Without effect here.",
        check=_check_socket,
    ),
    Setting(
        "zookeeper.ssl.keystore.location",
        SettingType.STRING,
        None,
        "File, PEM or PKCS12, with the private key and the certificates that this broker shows to ZooKeeper, "
        "its own first. Unset: none, for a server with ssl.clientAuth=none.",
    ),
    Setting(
        "zookeeper.ssl.keystore.password",
        SettingType.PASSWORD,
        None,
        "Password of `zookeeper.ssl.keystore.location`.",
    ),
    Setting(
        "zookeeper.ssl.keystore.type",
        SettingType.STRING,
        None,
        "Format of `zookeeper.ssl.keystore.location`: PEM, PKCS12 or JKS. Unset: what the file is.",
        choices=STORE_TYPES,
    ),
    Setting(
        "zookeeper.ssl.truststore.location",
        SettingType.STRING,
        None,
        "File, PEM or PKCS12, with the authorities whose certificates this broker accepts from ZooKeeper. "
        "Unset: those of the system.",
    ),
    Setting(
        "zookeeper.ssl.truststore.password",
        SettingType.PASSWORD,
        None,
        "Password of `zookeeper.ssl.truststore.location`.",
    ),
    Setting(
        "zookeeper.ssl.truststore.type",
        SettingType.STRING,
        None,
        "Format of `zookeeper.ssl.truststore.location`: PEM, PKCS12 or JKS. Unset: what the file is.",
        choices=STORE_TYPES,
    ),
    Setting(
        "zookeeper.ssl.enabled.protocols",
        SettingType.LIST,
        TLS_VERSIONS,
        "Versions of TLS to speak with ZooKeeper.",
        choices=TLS_VERSIONS,
    ),
    Setting(
        "zookeeper.ssl.cipher.suites",
        SettingType.LIST,
        (),
        "Cipher suites to speak with ZooKeeper, as in `ssl.cipher.suites`. Empty: those that OpenSSL takes "
        "for safe.",
    ),
    Setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        SettingType.STRING,
        HTTPS,
        "How a ZooKeeper server's certificate is compared with the name in `zookeeper.connect`: `https`, in "
        "any case, compares names; empty: any name will do.",
    ),
)
"""Rows of the settings, in the order of the documentation."""


def zookeeper_tls(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """How to connect to ZooKeeper; None: without TLS. Raises SettingError."""
    if not settings[ENABLE]:
        return None
    own: dict[str, Any] = dict.fromkeys(_NOT_FOR_ZOOKEEPER)
    for row in SETTINGS:
        if row.name.startswith("zookeeper.ssl."):
            own[row.name.removeprefix(_PREFIX)] = settings[row.name]
    try:
        return connecting_context(own, read_stores(own))
    except (StoreError, TlsError) as error:
        raise SettingError(f"{_PREFIX}{error}") from None


def zookeeper_tls_in(path: str) -> ssl.SSLContext | None:
    """How to connect to ZooKeeper by the settings of a properties file, which may have others too. Raises
    SettingError."""
    given = load_properties(path)
    names = {row.name for row in SETTINGS}
    return zookeeper_tls(Settings(SETTINGS, {name: given[name] for name in names & given.keys()}))
