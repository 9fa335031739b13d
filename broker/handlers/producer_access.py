"""ProducerAccess (key 30026, PIP-68): a producer requests access to a partition, shared or exclusive.

"When a new producer tries to create a session for the 1st time, it will be leaving the topic_epoch empty";
a producer that reconnects names the epoch that it was given, and resumes it or is fenced for good.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.log.settings import CLAIMED, REQUIRED
from holdfast_log.broker.ownership import requests
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.claims import AccessClaim, wait_until_ms
from holdfast_log.broker.ownership.rules import NO_EPOCH
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.ownership.settings import SessionTimeouts
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.ownership.records import PartitionKey
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.ownership import PRODUCERS_GROUP, Access
from holdfast_log.protocol.messages.producer_access import (
    ProducerAccessMode,
    ProducerAccessRequest,
    ProducerAccessResponse,
)


@dataclass(eq=False)
class ProducerAccessHandler(Handler[ProducerAccessRequest, ProducerAccessResponse]):
    request = ProducerAccessRequest
    ownership: OwnershipService
    session_timeouts: SessionTimeouts

    def handle(
        self, context: RequestContext, request: ProducerAccessRequest
    ) -> Deferred[ProducerAccessResponse]:
        self.session_timeouts.check(request.session_timeout_ms)
        mode = _mode(request)
        context.check(AclOperation.WRITE, AclResource.TOPIC, request.topic)
        key = self.ownership.decided.locate(PRODUCERS_GROUP, request.topic, request.partition)
        assert isinstance(key, PartitionKey)
        self._check_policy(key, mode)
        requester = requests.requester_of(
            context,
            PRODUCERS_GROUP,
            request.producer_id,
            request.session_timeout_ms,
            Access.WRITE,
            request.writer_client_id,
            request.writer_principal,
            secret=request.secret,
            covers_topic=request.covers_topic and mode is not ProducerAccessMode.SHARED,
        )
        until_ms = wait_until_ms(self.ownership.now_ms(), request.wait_timeout_ms)
        claim = AccessClaim(requester, key, mode, request.epoch, until_ms, request.waited_ms)
        standings = self.ownership.submit(requests.connection_of(context), claim, request.timeout_ms)
        response = standings.addCallback(_response)
        if requester.owner.covers_topic and key.index == 0:
            response.addCallback(self._with_partition_count, key)
        return response

    def _with_partition_count(
        self, response: ProducerAccessResponse, first: PartitionKey
    ) -> ProducerAccessResponse | Deferred[ProducerAccessResponse]:
        """The response with the number of partitions that the topic has now.

        The grant is durable: a leader of a partition that is added after this keeps it for the owner. The
        owner claims those that were added before.
        """
        if response.error_code != ErrorCode.NONE:
            return response

        def counted(count: int) -> ProducerAccessResponse:
            response.partition_count = count
            return response

        return self.ownership.partition_count(first).addCallback(counted)

    def _check_policy(self, key: PartitionKey, mode: ProducerAccessMode) -> None:
        """Raises BrokerError if the topic's `single.writer` would not enforce the requested access."""
        partition = self.ownership.decided.partition(key)
        policy = CLAIMED if partition is None else partition.log.settings.single_writer
        is_shared = mode is ProducerAccessMode.SHARED
        if is_shared and policy == REQUIRED:
            raise error_for(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"{key} allows one writer only (single.writer=required): request exclusive access",
            )
        if not is_shared and policy not in (CLAIMED, REQUIRED):
            raise error_for(
                ErrorCode.POLICY_VIOLATION,
                f"exclusive access to {key} would not be enforced: set single.writer to claimed or required",
            )

    def failed(
        self, context: RequestContext, request: ProducerAccessRequest, error: BrokerError
    ) -> ProducerAccessResponse:
        return ProducerAccessResponse(error_code=error.code, error_message=error.message)


def _mode(request: ProducerAccessRequest) -> ProducerAccessMode:
    if request.partition < 0 or request.epoch < NO_EPOCH:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"partition {request.partition} or epoch {request.epoch} is negative"
        )
    try:
        return ProducerAccessMode(request.mode)
    except ValueError:
        known = ", ".join(f"{mode.value} ({mode.name})" for mode in ProducerAccessMode)
        raise error_for(ErrorCode.INVALID_REQUEST, f"mode {request.mode} is not one of {known}") from None


def _response(answers: Standings) -> ProducerAccessResponse:
    (standing,) = answers
    return ProducerAccessResponse(
        error_code=standing.error_code,
        error_message=standing.error_message,
        epoch=standing.generation,
        incarnation=standing.incarnation,
        fence_offset=standing.fence_offset,
        leader_epoch=standing.leader_epoch,
        position=standing.position,
        owner_id=standing.owner_id,
        owner_client_id=standing.owner_client_id,
        owner_host=standing.owner_host,
        owner_since_ms=standing.owner_since_ms,
        reason=standing.reason,
    )
