"""The public API of Holdfast.

    from holdfast_log import Admin, Consumer, Message, NewTopic, Producer

The name differs from the project's because another distribution already installs a package named `holdfast`.
Everything that is not listed here may change between versions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# For type checkers. At run time `_MODULES` names the same modules: tests/clients/test_public_api.py compares.
if TYPE_CHECKING:
    from holdfast_log.clients.admin import Admin as Admin, NewTopic as NewTopic
    from holdfast_log.clients.connection.connection import (
        ANY_NODE as ANY_NODE,
        CONTROLLER as CONTROLLER,
        Connection as Connection,
    )
    from holdfast_log.clients.connection.link import Call as Call, Reply as Reply
    from holdfast_log.clients.consumer import Consumer as Consumer
    from holdfast_log.clients.dead_letter import DeadLetterTopic as DeadLetterTopic
    from holdfast_log.clients.errors import (
        BufferFullError as BufferFullError,
        ClientError as ClientError,
        ClosedError as ClosedError,
        CommitFailedError as CommitFailedError,
        CommitUnknownError as CommitUnknownError,
        ConcurrentUseError as ConcurrentUseError,
        ConfigError as ConfigError,
        ConnectionFailedError as ConnectionFailedError,
        ConnectionProblem as ConnectionProblem,
        DeliveryTimeoutError as DeliveryTimeoutError,
        ForkedConsumerError as ForkedConsumerError,
        ForkedError as ForkedError,
        GuardElsewhereError as GuardElsewhereError,
        GuardMismatchError as GuardMismatchError,
        InsideCallbackError as InsideCallbackError,
        LogTruncatedError as LogTruncatedError,
        Loss as Loss,
        NoBrokerError as NoBrokerError,
        NoGroupError as NoGroupError,
        NoOffsetError as NoOffsetError,
        RecordDeserializationError as RecordDeserializationError,
        RecordTooLargeError as RecordTooLargeError,
        RequestTimeoutError as RequestTimeoutError,
        TopicRecreatedError as TopicRecreatedError,
        TransactionAbortedError as TransactionAbortedError,
        TransactionStateError as TransactionStateError,
        UndeliveredError as UndeliveredError,
        UnreachableError as UnreachableError,
        UnsupportedRequestError as UnsupportedRequestError,
        WrongLoopError as WrongLoopError,
    )
    from holdfast_log.clients.exclusive_consumer import ExclusiveConsumer as ExclusiveConsumer
    from holdfast_log.clients.exclusive_producer import ExclusiveProducer as ExclusiveProducer
    from holdfast_log.clients.fence import OwnerFence as OwnerFence
    from holdfast_log.clients.fetching.fetched import (
        EncodedBatch as EncodedBatch,
        FetchedBatch as FetchedBatch,
    )
    from holdfast_log.clients.groups.listener import RebalanceListener as RebalanceListener
    from holdfast_log.clients.message import (
        NO_VERSION as NO_VERSION,
        ConsumerRecord as ConsumerRecord,
        Message as Message,
        OffsetAndMetadata as OffsetAndMetadata,
        RecordMetadata as RecordMetadata,
    )
    from holdfast_log.clients.ownership.claim import FOR_EVER as FOR_EVER
    from holdfast_log.clients.ownership.claim_requests import Writer as Writer
    from holdfast_log.clients.ownership.events import (
        ClaimState as ClaimState,
        OwnershipEvent as OwnershipEvent,
        TenureState as TenureState,
    )
    from holdfast_log.clients.ownership.lease import Lease as Lease
    from holdfast_log.clients.producer import Producer as Producer
    from holdfast_log.clients.sending.responses import (
        BulkResponse as BulkResponse,
        SendResponse as SendResponse,
    )
    from holdfast_log.clients.transactions.transaction import ProducerTransaction as ProducerTransaction
    from holdfast_log.protocol.errors import (
        AppendIdUnknownError as AppendIdUnknownError,
        AuthenticationError as AuthenticationError,
        AuthorizationError as AuthorizationError,
        BrokerError as BrokerError,
        ClaimQueuedError as ClaimQueuedError,
        CorruptMessageError as CorruptMessageError,
        ErrorCode as ErrorCode,
        FencedInstanceIdError as FencedInstanceIdError,
        FencedLeaderEpochError as FencedLeaderEpochError,
        GroupNotEmptyError as GroupNotEmptyError,
        GroupNotFoundError as GroupNotFoundError,
        GroupRebalanceError as GroupRebalanceError,
        InvalidConfigError as InvalidConfigError,
        InvalidRecordError as InvalidRecordError,
        InvalidRegularExpressionError as InvalidRegularExpressionError,
        InvalidRequestError as InvalidRequestError,
        InvalidTopicError as InvalidTopicError,
        KeyVersionMismatchError as KeyVersionMismatchError,
        LeaderNotAvailableError as LeaderNotAvailableError,
        MessageTooLargeError as MessageTooLargeError,
        NotControllerError as NotControllerError,
        NotCoordinatorError as NotCoordinatorError,
        NotEnoughReplicasError as NotEnoughReplicasError,
        NotLeaderOrFollowerError as NotLeaderOrFollowerError,
        OffsetMismatchError as OffsetMismatchError,
        OffsetOutOfRangeError as OffsetOutOfRangeError,
        OperationNotAttemptedError as OperationNotAttemptedError,
        OutOfOrderSequenceError as OutOfOrderSequenceError,
        OwnershipDetachedError as OwnershipDetachedError,
        OwnershipFencedError as OwnershipFencedError,
        OwnershipRefusedError as OwnershipRefusedError,
        PolicyViolationError as PolicyViolationError,
        ProducerFencedError as ProducerFencedError,
        QuotaExceededError as QuotaExceededError,
        RequestTimedOutError as RequestTimedOutError,
        StorageError as StorageError,
        TopicExistsError as TopicExistsError,
        UnknownLeaderEpochError as UnknownLeaderEpochError,
        UnknownTopicOrPartitionError as UnknownTopicOrPartitionError,
        UnsupportedVersionError as UnsupportedVersionError,
    )
    from holdfast_log.protocol.messages.ownership import (
        IF_FREE as IF_FREE,
        Access as Access,
        LossReason as LossReason,
    )
    from holdfast_log.protocol.messages.producer_access import ProducerAccessMode as ProducerAccessMode
    from holdfast_log.protocol.topic_partition import TopicPartition as TopicPartition

_MODULES = {
    "clients.admin": ("Admin", "NewTopic"),
    "clients.connection.connection": ("ANY_NODE", "CONTROLLER", "Connection"),
    "clients.consumer": ("Consumer",),
    "clients.dead_letter": ("DeadLetterTopic",),
    "clients.errors": (
        "BufferFullError",
        "ClientError",
        "ClosedError",
        "CommitFailedError",
        "CommitUnknownError",
        "ConcurrentUseError",
        "ConfigError",
        "ConnectionFailedError",
        "ConnectionProblem",
        "DeliveryTimeoutError",
        "ForkedConsumerError",
        "ForkedError",
        "GuardElsewhereError",
        "GuardMismatchError",
        "InsideCallbackError",
        "LogTruncatedError",
        "Loss",
        "NoBrokerError",
        "NoGroupError",
        "NoOffsetError",
        "RecordDeserializationError",
        "RecordTooLargeError",
        "RequestTimeoutError",
        "TopicRecreatedError",
        "TransactionAbortedError",
        "TransactionStateError",
        "UndeliveredError",
        "UnreachableError",
        "UnsupportedRequestError",
        "WrongLoopError",
    ),
    "clients.fence": ("OwnerFence",),
    "clients.fetching.fetched": ("EncodedBatch", "FetchedBatch"),
    "clients.groups.listener": ("RebalanceListener",),
    "clients.connection.link": ("Call", "Reply"),
    "clients.message": (
        "ConsumerRecord",
        "Message",
        "NO_VERSION",
        "OffsetAndMetadata",
        "RecordMetadata",
    ),
    "clients.ownership.events": ("ClaimState", "OwnershipEvent", "TenureState"),
    "clients.exclusive_producer": ("ExclusiveProducer",),
    "clients.ownership.lease": ("Lease",),
    "clients.exclusive_consumer": ("ExclusiveConsumer",),
    "clients.ownership.claim": ("FOR_EVER",),
    "clients.ownership.claim_requests": ("Writer",),
    "clients.producer": ("Producer",),
    "clients.sending.responses": ("BulkResponse", "SendResponse"),
    "clients.transactions.transaction": ("ProducerTransaction",),
    "protocol.errors": (
        "AppendIdUnknownError",
        "AuthenticationError",
        "AuthorizationError",
        "BrokerError",
        "ClaimQueuedError",
        "CorruptMessageError",
        "ErrorCode",
        "FencedInstanceIdError",
        "FencedLeaderEpochError",
        "GroupNotEmptyError",
        "GroupNotFoundError",
        "GroupRebalanceError",
        "InvalidConfigError",
        "InvalidRecordError",
        "InvalidRegularExpressionError",
        "InvalidRequestError",
        "InvalidTopicError",
        "KeyVersionMismatchError",
        "LeaderNotAvailableError",
        "MessageTooLargeError",
        "NotControllerError",
        "NotCoordinatorError",
        "NotEnoughReplicasError",
        "NotLeaderOrFollowerError",
        "OffsetMismatchError",
        "OffsetOutOfRangeError",
        "OperationNotAttemptedError",
        "OutOfOrderSequenceError",
        "OwnershipDetachedError",
        "OwnershipFencedError",
        "OwnershipRefusedError",
        "PolicyViolationError",
        "ProducerFencedError",
        "QuotaExceededError",
        "RequestTimedOutError",
        "StorageError",
        "TopicExistsError",
        "UnknownLeaderEpochError",
        "UnknownTopicOrPartitionError",
        "UnsupportedVersionError",
    ),
    "protocol.messages.ownership": ("Access", "IF_FREE", "LossReason"),
    "protocol.messages.producer_access": ("ProducerAccessMode",),
    "protocol.topic_partition": ("TopicPartition",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that a consumer does not load the admin client."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
