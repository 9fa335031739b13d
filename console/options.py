"""What the console was started with, and whether it may be started so."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

PORT = 8080
REFRESH_MS = 5_000


class UnsafeStart(Exception):
    """The console may not be started like this; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """`host` and `port` are where it listens; port 0 is any free one. `names` are further names by which
    browsers may call it. `has_tls`: it has a certificate. `is_behind_tls`: a proxy in front speaks TLS."""

    host: str = "127.0.0.1"
    port: int = PORT
    allow_changes: bool = False
    needs_login: bool = False
    names: tuple[str, ...] = ()
    has_tls: bool = False
    is_behind_tls: bool = False
    refresh_s: float = REFRESH_MS / 1000

    @property
    def is_secure(self) -> bool:
        """Whether browsers speak TLS to it."""
        return self.has_tls or self.is_behind_tls

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """The names that the header Host may have, without a port: no other site can point its name here."""
        own = {"localhost", "127.0.0.1", "[::1]"} if is_loopback(self.host) else set()
        if not is_any_address(self.host):
            own.add(f"[{self.host}]" if ":" in self.host else self.host)
        return frozenset(name.lower() for name in (*own, *self.names))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_any_address(host: str) -> bool:
    """Whether the address stands for all of this machine's."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def check(options: ConsoleOptions) -> None:
    """Raises UnsafeStart if other machines could see the cluster without a login, or overhear one."""
    if is_loopback(options.host):
        return
    if not options.needs_login:
        raise UnsafeStart(
            f"other machines can reach {options.host}, and without a login everybody there would see the "
            "cluster. Listen on 127.0.0.1 and reach it through ssh (ssh -L 8080:127.0.0.1:8080 MACHINE), or "
            "add --login, so that people log in with their SASL user and password."
        )
    if not options.is_secure:
        raise UnsafeStart(
            f"other machines can reach {options.host}, and passwords would cross the network unencrypted. "
            "Give --certificate and --key, or --behind-tls if a proxy in front of the console speaks TLS."
        )
    if is_any_address(options.host) and not options.names:
        raise UnsafeStart(
            f"{options.host} is every address of this machine, so say by which names browsers call it: "
            "--name console.example.com. Requests for other names are refused."
        )
