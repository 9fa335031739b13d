"""The own API's requests of one owner, and what the owner keeps of the responses."""

from __future__ import annotations

import hashlib
from typing import Any

from holdfast_log.protocol.messages.ownership import (
    Access,
    HeldResource,
    OwnRequest,
    ReleaseRequest,
    RenewRequest,
    ResourceClaim,
    ResourceStanding,
    ResumedResource,
    ResumeRequest,
)


def secret_of(owner_id: str) -> bytes:
    """The secret of the one process that a test means by an owner id."""
    return hashlib.md5(owner_id.encode()).digest()


class OwnershipRequests:
    """Makes requests about one partition, with the generation and incarnation granted last (-1: none)."""

    session_timeout_ms: int
    timeout_ms: int

    def __init__(self, owner_id: str, group: str, access: Access) -> None:
        self.owner_id = owner_id
        self.secret = secret_of(owner_id)
        self.group = group
        self.access = access
        self.generation = -1
        self.incarnation = -1

    def claim_request(self, topic: str, generation: int = 1, partition: int = 0, **fields: Any) -> OwnRequest:
        return OwnRequest(
            group=self.group,
            owner_id=self.owner_id,
            secret=self.secret,
            session_timeout_ms=fields.pop("session_timeout_ms", self.session_timeout_ms),
            timeout_ms=fields.pop("timeout_ms", self.timeout_ms),
            access=fields.pop("access", self.access),
            resources=[ResourceClaim(name=topic, partition=partition, generation=generation)],
            **fields,
        )

    def resume_request(self, topic: str, partition: int = 0) -> ResumeRequest:
        resource = ResumedResource(
            name=topic, partition=partition, generation=self.generation, incarnation=self.incarnation
        )
        return ResumeRequest(
            group=self.group,
            owner_id=self.owner_id,
            secret=self.secret,
            session_timeout_ms=self.session_timeout_ms,
            timeout_ms=self.timeout_ms,
            resources=[resource],
        )

    def renew_request(self, topic: str, partition: int = 0, max_wait_ms: int = 0) -> RenewRequest:
        held = [self._held(topic, partition)]
        return RenewRequest(
            group=self.group,
            owner_id=self.owner_id,
            max_wait_ms=max_wait_ms,
            resources=held,
            secret=self.secret,
        )

    def release_request(self, topic: str, partition: int = 0) -> ReleaseRequest:
        held = [self._held(topic, partition)]
        return ReleaseRequest(group=self.group, owner_id=self.owner_id, resources=held, secret=self.secret)

    def take(self, standing: ResourceStanding) -> None:
        """Keep the generation and incarnation that a response granted."""
        if standing.error_code == 0:
            self.generation, self.incarnation = standing.generation, standing.incarnation

    def _held(self, topic: str, partition: int) -> HeldResource:
        return HeldResource(name=topic, partition=partition, incarnation=self.incarnation)
