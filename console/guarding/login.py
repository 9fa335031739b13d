"""The login: people who can connect to the cluster with a user and a password use the console as that one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from holdfast_log.clients.config import ADMIN_ROWS
from holdfast_log.console.asking.work import Clients

MECHANISM, USER, PASSWORD = "sasl.mechanism", "sasl.username", "sasl.password"
"""The properties by which a client logs in."""
_LENGTH_MAX = 1_000

LoginCheck: TypeAlias = Callable[[str, str], Mapping[str, Any]]
"""Checks a user and a password by connecting with them. Returns the properties of that user's clients.

It blocks. Raises ClientError or BrokerError if the cluster refuses them, or cannot be asked."""


def missing_for_login(properties: Mapping[str, Any]) -> str | None:
    """What is missing before people can log in, and what to do; None if they can."""
    known = {row.name for row in ADMIN_ROWS}
    if not {MECHANISM, USER, PASSWORD} <= known:
        return (
            "--login needs SASL, which these clients do not speak yet: people log in with their SASL user "
            "and password. Without --login the console listens on 127.0.0.1 only; reach it from elsewhere "
            "through ssh (ssh -L 8080:127.0.0.1:8080 MACHINE)."
        )
    protocol = str(properties.get("security.protocol", "PLAINTEXT"))
    if not protocol.startswith("SASL_"):
        return (
            f"--login needs a cluster in which people have passwords, and security.protocol is {protocol}. "
            "Set security.protocol to SASL_SSL and sasl.mechanism in the file of --command-config."
        )
    if not properties.get(MECHANISM):
        return "--login needs sasl.mechanism in the file of --command-config: SCRAM-SHA-512, for example."
    return None


def check_by_connecting(clients: Clients) -> LoginCheck:
    """A check that asks the cluster for its brokers, as that user."""

    def check(user: str, password: str) -> Mapping[str, Any]:
        personal = {USER: user, PASSWORD: password}
        with clients.admin(personal) as admin:
            admin.describe_cluster()
        return personal

    return check


def refused(user: str, password: str) -> str | None:
    """What is wrong with a user and a password before any broker sees them; None if nothing is."""
    if not user or not password:
        return "Enter a user and a password."
    if len(user) > _LENGTH_MAX or len(password) > _LENGTH_MAX:
        return "The user or the password is too long."
    return None
