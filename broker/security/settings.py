"""The settings of access control lists, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.clients.settings import Setting, SettingType

KAFKAS_NAME = "kafka.security.authorizer.AclAuthorizer"
OWN_NAME = "acls"
_PRINCIPALS_SEPARATOR = ";"


def super_users_in(text: str) -> frozenset[str]:
    """The principals in a list separated by semicolons. Raises ValueError that says what is allowed."""
    principals = frozenset(filter(None, map(str.strip, text.split(_PRINCIPALS_SEPARATOR))))
    for each in principals:
        kind, separator, name = each.partition(":")
        if not (kind and separator and name):
            raise ValueError(f"principals such as User:admin, separated by semicolons, and not {each!r}")
    return principals


def _check_class(value: Any) -> None:
    if value not in ("", OWN_NAME, KAFKAS_NAME):
        raise ValueError(f"{OWN_NAME}, or Kafka's name for it, {KAFKAS_NAME}, or nothing: no authorizer")


def _check_super_users(value: Any) -> None:
    super_users_in(value)


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "authorizer.class.name",
        SettingType.STRING,
        "",
        f"What decides who may do what: `{OWN_NAME}`, or Kafka's name for it, `{KAFKAS_NAME}`: the access "
        "control lists in ZooKeeper. Empty: every client may do everything. Set it on all brokers of a "
        "cluster, with `super.users`.",
        check=_check_class,
    ),
    Setting(
        "super.users",
        SettingType.STRING,
        "",
        "Principals that may do everything, whatever the access control lists say, separated by semicolons: "
        "`User:admin;User:CN=ops,O=Example`.",
        check=_check_super_users,
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        SettingType.BOOLEAN,
        False,
        "Whether everyone may do everything to a resource that no access control list names. Otherwise only "
        "`super.users` may.",
    ),
    Setting(
        "acl.entries.max",
        SettingType.INT,
        50_000,
        "Maximum number of entries in all access control lists together. Every broker keeps all of them in "
        "memory. One more is refused with POLICY_VIOLATION; those that exist stay in force and can be "
        "deleted.",
        minimum=0,
    ),
)


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """Which authorizer decides, whom it allows everything, and how many entries it keeps."""

    class_name: Annotated[str, "authorizer.class.name"] = ""
    super_users: Annotated[str, "super.users"] = ""
    allows_without_acls: Annotated[bool, "allow.everyone.if.no.acl.found"] = False
    entries_max: Annotated[int, "acl.entries.max"] = 50_000

    @property
    def is_enabled(self) -> bool:
        """Whether there is an authorizer."""
        return bool(self.class_name)
