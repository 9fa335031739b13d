"""The public API of Holdfast.

    from holdfast_log import Admin, Consumer, Message, NewTopic, Producer

The names here come from the top-level packages `clients` and `protocol` of this installation. Another package
with one of these common names may come first on the import path; then `import holdfast` raises an ImportError
that names it.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast_log.clients.admin import Admin, NewTopic
    from holdfast_log.clients.connection.connection import ANY_NODE, CONTROLLER, Connection
    from holdfast_log.clients.connection.link import Call, Reply
    from holdfast_log.clients.consumer import Consumer
    from holdfast_log.clients.dead_letter import DeadLetterTopic
    from holdfast_log.clients.errors import (
        BufferFullError,
        ClientError,
        ClosedError,
        CommitFailedError,
        ConcurrentUseError,
        ConfigError,
        ConnectionFailedError,
        ConnectionProblem,
        DeliveryTimeoutError,
        ForkedConsumerError,
        ForkedError,
        GuardElsewhereError,
        GuardMismatchError,
        InsideCallbackError,
        LogTruncatedError,
        Loss,
        NoBrokerError,
        NoGroupError,
        NoOffsetError,
        RecordDeserializationError,
        RecordTooLargeError,
        RequestTimeoutError,
        TopicRecreatedError,
        UndeliveredError,
        UnreachableError,
        UnsupportedRequestError,
    )
    from holdfast_log.clients.exclusive_consumer import ExclusiveConsumer
    from holdfast_log.clients.exclusive_producer import ExclusiveProducer
    from holdfast_log.clients.fence import OwnerFence
    from holdfast_log.clients.fetching.fetched import EncodedBatch, FetchedBatch
    from holdfast_log.clients.groups.listener import RebalanceListener
    from holdfast_log.clients.message import (
        NO_VERSION,
        ConsumerRecord,
        Message,
        OffsetAndMetadata,
        RecordMetadata,
    )
    from holdfast_log.clients.ownership.claim import FOR_EVER
    from holdfast_log.clients.ownership.claim_requests import Writer
    from holdfast_log.clients.ownership.events import ClaimState, OwnershipEvent, TenureState
    from holdfast_log.clients.ownership.lease import Lease
    from holdfast_log.clients.producer import Producer
    from holdfast_log.clients.sending.responses import BulkResponse, SendResponse
    from holdfast_log.protocol.errors import (
        AuthenticationError,
        AuthorizationError,
        BrokerError,
        ClaimQueuedError,
        CorruptMessageError,
        ErrorCode,
        FencedInstanceIdError,
        FencedLeaderEpochError,
        GroupNotEmptyError,
        GroupNotFoundError,
        GroupRebalanceError,
        InvalidConfigError,
        InvalidRecordError,
        InvalidRequestError,
        InvalidTopicError,
        KeyVersionMismatchError,
        LeaderNotAvailableError,
        MessageTooLargeError,
        NotControllerError,
        NotCoordinatorError,
        NotEnoughReplicasError,
        NotLeaderOrFollowerError,
        OffsetMismatchError,
        OffsetOutOfRangeError,
        OperationNotAttemptedError,
        OutOfOrderSequenceError,
        OwnershipDetachedError,
        OwnershipFencedError,
        OwnershipRefusedError,
        ProducerFencedError,
        QuotaExceededError,
        RequestTimedOutError,
        StorageError,
        TopicExistsError,
        UnknownLeaderEpochError,
        UnknownTopicOrPartitionError,
        UnsupportedVersionError,
    )
    from holdfast_log.protocol.messages.ownership import IF_FREE, Access, LossReason
    from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
    from holdfast_log.protocol.topic_partition import TopicPartition

__all__ = [
    "Access", "Admin", "ANY_NODE", "AuthenticationError", "AuthorizationError", "BrokerError",
    "BufferFullError", "BulkResponse", "Call", "ClaimQueuedError", "ClaimState", "ClientError", "ClosedError",
    "CommitFailedError", "ConcurrentUseError", "ConfigError", "Connection", "ConnectionFailedError",
    "ConnectionProblem", "Consumer", "ConsumerRecord", "CONTROLLER", "CorruptMessageError", "DeadLetterTopic",
    "DeliveryTimeoutError", "EncodedBatch", "ErrorCode", "ExclusiveConsumer", "ExclusiveProducer",
    "FencedInstanceIdError", "FencedLeaderEpochError", "FetchedBatch", "FOR_EVER", "ForkedConsumerError",
    "ForkedError", "GroupNotEmptyError", "GroupNotFoundError", "GroupRebalanceError", "GuardElsewhereError",
    "GuardMismatchError", "IF_FREE", "InsideCallbackError", "InvalidConfigError", "InvalidRecordError",
    "InvalidRequestError", "InvalidTopicError", "KeyVersionMismatchError", "LeaderNotAvailableError", "Lease",
    "LogTruncatedError", "Loss", "LossReason", "Message", "MessageTooLargeError", "NewTopic", "NO_VERSION",
    "NoBrokerError", "NoGroupError", "NoOffsetError", "NotControllerError", "NotCoordinatorError",
    "NotEnoughReplicasError", "NotLeaderOrFollowerError", "OffsetAndMetadata", "OffsetMismatchError",
    "OffsetOutOfRangeError", "OperationNotAttemptedError", "OutOfOrderSequenceError", "OwnerFence",
    "OwnershipDetachedError", "OwnershipEvent", "OwnershipFencedError", "OwnershipRefusedError", "Producer",
    "ProducerAccessMode", "ProducerFencedError", "QuotaExceededError", "RebalanceListener",
    "RecordDeserializationError", "RecordMetadata", "RecordTooLargeError", "Reply", "RequestTimedOutError",
    "RequestTimeoutError", "SendResponse", "StorageError", "TenureState", "TopicExistsError",
    "TopicPartition", "TopicRecreatedError", "UndeliveredError", "UnknownLeaderEpochError",
    "UnknownTopicOrPartitionError", "UnreachableError", "UnsupportedRequestError", "UnsupportedVersionError",
    "Writer",
]  # fmt: skip

_MODULES = {
    "holdfast_log.clients.admin": ("Admin", "NewTopic"),
    "holdfast_log.clients.connection.connection": ("ANY_NODE", "CONTROLLER", "Connection"),
    "holdfast_log.clients.consumer": ("Consumer",),
    "holdfast_log.clients.dead_letter": ("DeadLetterTopic",),
    "holdfast_log.clients.errors": (
        "BufferFullError",
        "ClientError",
        "ClosedError",
        "CommitFailedError",
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
        "UndeliveredError",
        "UnreachableError",
        "UnsupportedRequestError",
    ),
    "holdfast_log.clients.fence": ("OwnerFence",),
    "holdfast_log.clients.fetching.fetched": ("EncodedBatch", "FetchedBatch"),
    "holdfast_log.clients.groups.listener": ("RebalanceListener",),
    "holdfast_log.clients.connection.link": ("Call", "Reply"),
    "holdfast_log.clients.message": (
        "ConsumerRecord",
        "Message",
        "NO_VERSION",
        "OffsetAndMetadata",
        "RecordMetadata",
        "TopicPartition",
    ),
    "holdfast_log.clients.ownership.events": ("ClaimState", "OwnershipEvent", "TenureState"),
    "holdfast_log.clients.exclusive_producer": ("ExclusiveProducer",),
    "holdfast_log.clients.ownership.lease": ("Lease",),
    "holdfast_log.clients.exclusive_consumer": ("ExclusiveConsumer",),
    "holdfast_log.clients.ownership.claim": ("FOR_EVER",),
    "holdfast_log.clients.ownership.claim_requests": ("Writer",),
    "holdfast_log.clients.producer": ("Producer",),
    "holdfast_log.clients.sending.responses": ("BulkResponse", "SendResponse"),
    "holdfast_log.protocol.errors": (
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
        "ProducerFencedError",
        "QuotaExceededError",
        "RequestTimedOutError",
        "StorageError",
        "TopicExistsError",
        "UnknownLeaderEpochError",
        "UnknownTopicOrPartitionError",
        "UnsupportedVersionError",
    ),
    "holdfast_log.protocol.messages.ownership": ("Access", "IF_FREE", "LossReason"),
    "holdfast_log.protocol.messages.producer_access": ("ProducerAccessMode",),
}
_MODULE_OF = {name: home for home, names in _MODULES.items() for name in names}
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that a consumer does not load the admin client."""
    home = _MODULE_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def _check_not_shadowed(packages: tuple[str, ...]) -> None:
    """Raise ImportError if another installation's package shadows one of `packages`."""
    for name in packages:
        module = importlib.import_module(name)
        places = [os.path.realpath(place) for place in getattr(module, "__path__", ())]
        if os.path.join(_ROOT, name) not in places:
            found = module.__file__ or ", ".join(places)
            raise ImportError(
                f"holdfast needs its own package {name!r}, but {found} comes before it on the import path: "
                "rename it, or remove its directory from the path"
            )


_check_not_shadowed(("protocol", "clients"))
