"""The admin client's calls about what clients may do and how much: quotas, access control lists, users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast_log.clients.admin import acls, quotas, scram
from holdfast_log.clients.admin.arguments import (
    ACL_BINDINGS,
    ACL_FILTERS,
    AN_ACL_FILTER,
    NAMES,
    QUOTA_CHANGES,
    QUOTA_NAMES,
    SCRAM_CHANGES,
)
from holdfast_log.clients.admin.asking import Asking
from holdfast_log.clients.admin.quotas import ClientQuotaEntity
from holdfast_log.clients.admin.scram import NewScramCredential, OldScramCredential
from holdfast_log.clients.arguments import A_FLAG, checked, optional
from holdfast_log.protocol.acl_bindings import AclBinding, AclFilter


class RightsCalls:
    """A part of `Admin`, which inherits these calls."""

    _asking: Asking

    # Quotas -------------------------------------------------------------------------------------------

    @checked(names=optional(QUOTA_NAMES), strict=A_FLAG)
    def describe_client_quotas(
        self, names: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """The quotas of the entities that have these names, by entity type (user, client-id, ip).

        A name of None is the default entity, `ANY_NAME` any. With `strict` only entities that have no other
        component. Without `names`, all quotas. Raises InvalidRequestError.
        """
        return quotas.describe_client_quotas(self._asking, names or {}, strict=strict)

    @checked(changes=QUOTA_CHANGES, validate_only=A_FLAG)
    def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas of entities, remove those with None, and leave the others as they are.

        Keys are Kafka's: producer_byte_rate, consumer_byte_rate, request_percentage,
        controller_mutation_rate; of an ip connection_creation_rate. Raises InvalidRequestError.
        """
        quotas.alter_client_quotas(self._asking, changes, validate_only=validate_only)

    # Access control lists -----------------------------------------------------------------------------

    @checked(bindings=ACL_BINDINGS)
    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Add entries to access control lists; those that exist stay as they are.

        Raises InvalidRequestError, AuthorizationError, and BrokerError (SECURITY_DISABLED) if brokers have no
        authorizer.
        """
        acls.create_acls(self._asking, bindings)

    @checked(wanted=optional(AN_ACL_FILTER))
    def describe_acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        """The entries that a filter selects, by default all. Raises as `create_acls`."""
        return acls.describe_acls(self._asking, wanted or AclFilter())

    @checked(filters=ACL_FILTERS)
    def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete the entries that any of the filters selects. Returns them. Raises as `create_acls`."""
        return acls.delete_acls(self._asking, filters)

    # Users --------------------------------------------------------------------------------------------

    @checked(users=optional(NAMES))
    def describe_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """The iterations of users' SCRAM credentials, by user and mechanism; of all users without `users`.

        Passwords and keys are never shown. Raises BrokerError (RESOURCE_NOT_FOUND) and others.
        """
        return scram.describe_scram_credentials(self._asking, users)

    @checked(changes=SCRAM_CHANGES)
    def alter_scram_credentials(self, changes: Iterable[NewScramCredential | OldScramCredential]) -> None:
        """Set users' passwords for SCRAM, and remove credentials. All changes of a user are made, or none.

        Passwords stay on this side: brokers get what is derived from them. Raises BrokerError
        (UNACCEPTABLE_CREDENTIAL, RESOURCE_NOT_FOUND) and others.
        """
        scram.alter_scram_credentials(self._asking, changes)
