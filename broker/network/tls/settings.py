"""The settings of TLS, one row each; a listener may have each for itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from holdfast_log.broker.network.tls.kernel import KERNEL_TLS, NEVER
from holdfast_log.broker.network.tls.principals import check_rules
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.clients.settings import Setting, SettingType
from holdfast_log.protocol.tls.names import CLIENT_AUTH, HTTPS, STORE_TYPES, TLS_VERSIONS

TLS_PROTOCOLS = ("SSL", "SASL_SSL")

_PREFIX = (
    "A setting `ssl.*` with `listener.name.<name>.` before it, the listener's name in lower case, is for one "
    "listener."
)

OF_LISTENERS: tuple[Setting, ...] = (
    Setting(
        "ssl.keystore.location",
        SettingType.STRING,
        None,
        "File with the private key and the certificates of listeners with TLS, the own certificate first; "
        f"brokers also show it to other brokers. The broker reads it again when it changes. {_PREFIX}",
        dynamic=True,
    ),
    Setting(
        "ssl.keystore.type",
        SettingType.STRING,
        None,
        "Format of `ssl.keystore.location`. JKS stands for what keytool makes by default, which is PKCS12 "
        "since Java 9. Unset: the format that the file has.",
        choices=STORE_TYPES,
    ),
    Setting(
        "ssl.keystore.password",
        SettingType.PASSWORD,
        None,
        "Password of `ssl.keystore.location`.",
    ),
    Setting(
        "ssl.key.password",
        SettingType.PASSWORD,
        None,
        "Password of an encrypted private key in PEM.",
    ),
    Setting(
        "ssl.keystore.key",
        SettingType.PASSWORD,
        None,
        "The private key itself in PEM, in place of `ssl.keystore.location`: for `${file:…}` and `${env:…}`.",
    ),
    Setting(
        "ssl.keystore.certificate.chain",
        SettingType.PASSWORD,
        None,
        "The certificates of `ssl.keystore.key` in PEM, the own one first.",
    ),
    Setting(
        "ssl.truststore.location",
        SettingType.STRING,
        None,
        "File with the certificates of the authorities that may sign the certificates of clients, and of "
        "other brokers. The broker reads it again when it changes.",
        dynamic=True,
    ),
    Setting(
        "ssl.truststore.type",
        SettingType.STRING,
        None,
        "Format of `ssl.truststore.location`, as for `ssl.keystore.type`.",
        choices=STORE_TYPES,
    ),
    Setting(
        "ssl.truststore.password",
        SettingType.PASSWORD,
        None,
        "Password of a trust store in the format PKCS12.",
    ),
    Setting(
        "ssl.truststore.certificates",
        SettingType.PASSWORD,
        None,
        "The trusted certificates themselves in PEM, in place of `ssl.truststore.location`.",
    ),
    Setting(
        "ssl.client.auth",
        SettingType.STRING,
        "none",
        "Whether clients show a certificate: `required`, or else the broker closes their connections; "
        "`requested`, and clients without one are `User:ANONYMOUS`; `none`. A certificate that the trust "
        "store does not vouch for is refused in any case.",
        choices=CLIENT_AUTH,
        dynamic=True,
    ),
    Setting(
        "ssl.enabled.protocols",
        SettingType.LIST,
        TLS_VERSIONS,
        "Versions of TLS that the broker speaks.",
        choices=TLS_VERSIONS,
        dynamic=True,
    ),
    Setting(
        "ssl.cipher.suites",
        SettingType.LIST,
        (),
        "Cipher suites that the broker uses, by their registered names or by OpenSSL's. The three of TLS 1.3 "
        "come together or not at all. Empty: those that OpenSSL takes for safe.",
        dynamic=True,
    ),
    Setting(
        "ssl.endpoint.identification.algorithm",
        SettingType.STRING,
        HTTPS,
        "With `https` this broker connects to another one only if the certificate has the name or address "
        "under which that broker is advertised. Empty: any name.",
    ),
    Setting(
        "ssl.principal.mapping.rules",
        SettingType.STRING,
        "DEFAULT",
        "Rules by which the name in a client's certificate becomes its principal, the first that fits: "
        "`RULE:pattern/replacement/`, with L or U at the end for lower or upper case, comma-separated; "
        "`DEFAULT` is the whole name.",
        check=check_rules,
        dynamic=True,
    ),
    Setting(
        "ssl.kernel.tls",
        SettingType.STRING,
        NEVER,
        "Who encrypts what is sent over TLS. `auto`: the system's kernel, if its module `tls` is loaded "
        "before the broker starts, or else OpenSSL; the kernel sends a log's records from its files. "
        "`never`: OpenSSL. It is Holdfast's own setting; new connections follow it.",
        choices=KERNEL_TLS,
        dynamic=True,
    ),
)
"""The rows that each listener may have for itself."""

SETTINGS: tuple[Setting, ...] = (
    *OF_LISTENERS,
    Setting(
        "ssl.handshake.timeout.ms",
        SettingType.INT,
        10_000,
        "Maximum time in ms from the opening of a connection to the end of its TLS handshake. Then the "
        "broker closes the connection.",
        minimum=100,
    ),
    Setting(
        "ssl.handshakes.max",
        SettingType.INT,
        500,
        "Maximum number of TLS handshakes under way at a listener: those of clients that have sent their "
        "first message. For a further one the broker closes the connection whose handshake began first.",
        minimum=1,
    ),
    Setting(
        "ssl.store.check.interval.ms",
        SettingType.LONG,
        10_000,
        "Time in ms between two looks at whether the files of key stores and trust stores have changed.",
        minimum=100,
    ),
)
"""Rows of the settings of TLS, in the order of the documentation."""


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class HandshakeLimits:
    """How long a handshake of a client may take, and how many may be under way."""

    timeout_ms: Annotated[int, "ssl.handshake.timeout.ms"] = 10_000
    open_max: Annotated[int, "ssl.handshakes.max"] = 500


def prefix_of(listener: str) -> str:
    """What precedes the name of a setting that is for this listener alone."""
    return f"listener.name.{listener.lower()}."


def tls_settings_of(settings: Mapping[str, Any]) -> tuple[Setting, ...]:
    """The rows of the settings that listeners with TLS may have for themselves. `settings` are those of the
    network."""
    pairs = [pair.partition(":") for pair in settings["listener.security.protocol.map"]]
    protocols = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
    names = [listener.partition("://")[0].upper() for listener in settings["listeners"]]
    listeners = [name for name in dict.fromkeys(names) if protocols.get(name) in TLS_PROTOCOLS]
    return tuple(
        replace(
            row,
            name=prefix_of(listener) + row.name,
            default=None,
            doc=f"{row.name} of the listener {listener}. Unset: {row.name}.",
        )
        for listener in listeners
        for row in OF_LISTENERS
    )


class ListenerSettings(Mapping[str, Any]):
    """The settings `ssl.*` in force for a listener: its own, or else those of all. A live view."""

    def __init__(self, settings: Mapping[str, Any], listener: str) -> None:
        self._settings = settings
        self._prefix = prefix_of(listener)

    def __getitem__(self, name: str) -> Any:
        own = self._settings.get(self._prefix + name)
        return self._settings[name] if own is None else own

    def __iter__(self) -> Iterator[str]:
        return iter([row.name for row in OF_LISTENERS])

    def __len__(self) -> int:
        return len(OF_LISTENERS)
