"""Builds what decides who may do what on this broker."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.security.administration import AclAdministration
from holdfast_log.broker.security.authorizer import AclAuthorizer
from holdfast_log.broker.security.settings import AuthorizerSettings, super_users_in
from holdfast_log.broker.setting_groups import read_group
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.clients.settings import Settings
from holdfast_log.coordinator.cluster.acls import AccessControlLists


@dataclass(frozen=True, slots=True)
class SecurityParts:
    """The access control lists, what decides by them, and what describes and alters them. `lists` and
    `authorizer` are None if the settings name no authorizer."""

    lists: AccessControlLists | None
    authorizer: AclAuthorizer | None
    acls: AclAdministration


def build_security(static: Settings, around: Surroundings) -> SecurityParts:
    wanted = read_group(AuthorizerSettings, static)
    if not wanted.is_enabled:
        return SecurityParts(None, None, AclAdministration(None, wanted.entries_max))
    lists = AccessControlLists(around.zookeeper, around.clock)
    authorizer = AclAuthorizer(super_users_in(wanted.super_users), allows_unlisted=wanted.allows_without_acls)
    return SecurityParts(lists, authorizer, AclAdministration(lists, wanted.entries_max))
