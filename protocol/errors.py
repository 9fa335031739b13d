"""Error codes of the protocol in one table, and their exceptions.

A row has the code, whether the same request may succeed when sent again, and its meaning. Codes from -1 to
133 are Kafka's. Holdfast's own codes start at 10000, so that no later Kafka version collides with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

RETRIABLE = True
FATAL = False

MESSAGE_LENGTH_MAX = 2000
"""Maximum length of an error's text, in characters. It may quote a client's input, and must fit a string of
the protocol."""


class ErrorCode(IntEnum):
    """Every error code of the protocol. `retriable` and `message` are its row's."""

    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool = FATAL, message: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = -1, FATAL, "Unexpected failure of the broker; see its log."
    NONE = 0, FATAL, "No error."
    OFFSET_OUT_OF_RANGE = 1, FATAL, "The partition does not have the requested offset."
    CORRUPT_MESSAGE = 2, RETRIABLE, "A record batch fails its checksum or is otherwise damaged."
    UNKNOWN_TOPIC_OR_PARTITION = 3, RETRIABLE, "The broker does not know this topic or partition."
    INVALID_FETCH_SIZE = 4, FATAL, "The number of bytes to fetch is not allowed."
    LEADER_NOT_AVAILABLE = 5, RETRIABLE, "The partition currently has no leader."
    NOT_LEADER_OR_FOLLOWER = (
        6,
        RETRIABLE,
        "The broker does not lead the partition, or holds no replica of it.",
    )
    REQUEST_TIMED_OUT = 7, RETRIABLE, "The request did not finish within its timeout."
    BROKER_NOT_AVAILABLE = 8, FATAL, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, RETRIABLE, "The replica is not available on this broker."
    MESSAGE_TOO_LARGE = 10, FATAL, "The record batch is larger than the topic allows (max.message.bytes)."
    STALE_CONTROLLER_EPOCH = 11, FATAL, "The sending controller has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, FATAL, "The metadata committed with the offset is too long."
    NETWORK_EXCEPTION = 13, RETRIABLE, "The connection was lost before the response came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, RETRIABLE, "The coordinator is still reading its state."
    COORDINATOR_NOT_AVAILABLE = 15, RETRIABLE, "The coordinator is not available."
    NOT_COORDINATOR = 16, RETRIABLE, "The broker does not coordinate this group or producer."
    INVALID_TOPIC_EXCEPTION = 17, FATAL, "The topic name is not allowed, or the topic is internal."
    RECORD_LIST_TOO_LARGE = 18, FATAL, "The record batches are larger than a segment (segment.bytes)."
    NOT_ENOUGH_REPLICAS = (
        19,
        RETRIABLE,
        "Fewer replicas are in sync than min.insync.replicas; nothing was written.",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        RETRIABLE,
        "The records were written, but fewer replicas than min.insync.replicas have them.",
    )
    INVALID_REQUIRED_ACKS = 21, FATAL, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, FATAL, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, FATAL, "The member shares no protocol with the rest of the group."
    INVALID_GROUP_ID = 24, FATAL, "The group id is not allowed."
    UNKNOWN_MEMBER_ID = 25, FATAL, "The group does not know this member."
    INVALID_SESSION_TIMEOUT = 26, FATAL, "The session timeout is outside the range that the broker allows."
    REBALANCE_IN_PROGRESS = 27, FATAL, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, FATAL, "The commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, FATAL, "Not authorised for the topic."
    GROUP_AUTHORIZATION_FAILED = 30, FATAL, "Not authorised for the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, FATAL, "Not authorised for the cluster."
    INVALID_TIMESTAMP = 32, FATAL, "The timestamp of a record is outside the range that the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, FATAL, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, FATAL, "The request does not fit the state of the authentication."
    UNSUPPORTED_VERSION = 35, FATAL, "The broker does not support this version of the API."
    TOPIC_ALREADY_EXISTS = 36, FATAL, "A topic with this name already exists."
    INVALID_PARTITIONS = 37, FATAL, "The number of partitions is not allowed."
    INVALID_REPLICATION_FACTOR = (
        38,
        FATAL,
        "The replication factor is below one or above the number of brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, FATAL, "The assignment of replicas to brokers is not allowed."
    INVALID_CONFIG = 40, FATAL, "A configuration is not allowed."
    NOT_CONTROLLER = 41, RETRIABLE, "The broker is not the controller."
    INVALID_REQUEST = 42, FATAL, "The request contradicts itself or the protocol; the broker's log says how."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, FATAL, "The message format on the broker cannot carry this request."
    POLICY_VIOLATION = 44, FATAL, "A policy of the broker forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, FATAL, "Records of this producer before this batch are missing."
    DUPLICATE_SEQUENCE_NUMBER = 46, FATAL, "The broker has already written this batch."
    INVALID_PRODUCER_EPOCH = 47, FATAL, "The producer's epoch is outdated."
    INVALID_TXN_STATE = 48, FATAL, "The transaction is in a state that forbids this."
    INVALID_PRODUCER_ID_MAPPING = 49, FATAL, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, FATAL, "The transaction timeout is above what the broker allows."
    CONCURRENT_TRANSACTIONS = 51, RETRIABLE, "The producer's previous transaction is not finished yet."
    TRANSACTION_COORDINATOR_FENCED = 52, FATAL, "The transaction coordinator has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, FATAL, "Not authorised for the transactional id."
    SECURITY_DISABLED = 54, FATAL, "The broker's security features are not enabled."
    OPERATION_NOT_ATTEMPTED = 55, FATAL, "Not attempted, because another part of the request failed first."
    KAFKA_STORAGE_ERROR = 56, RETRIABLE, "The broker's disk failed; the log directory is offline."
    LOG_DIR_NOT_FOUND = 57, FATAL, "The broker's configuration has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, FATAL, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, FATAL, "The broker has no state of this producer, or no longer."
    REASSIGNMENT_IN_PROGRESS = 60, FATAL, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, FATAL, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, FATAL, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, FATAL, "The delegation token belongs to another principal."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        FATAL,
        "Delegation tokens cannot be requested on this connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, FATAL, "Not authorised for the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, FATAL, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, FATAL, "This type of principal is not supported."
    NON_EMPTY_GROUP = 68, FATAL, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, FATAL, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, RETRIABLE, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, RETRIABLE, "The fetch session's epoch is not the expected one."
    LISTENER_NOT_FOUND = (
        72,
        RETRIABLE,
        "The leader has no listener with the name of the one that received the request.",
    )
    TOPIC_DELETION_DISABLED = 73, FATAL, "Topics cannot be deleted (delete.topic.enable)."
    FENCED_LEADER_EPOCH = 74, RETRIABLE, "The leader epoch is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, RETRIABLE, "The leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, FATAL, "The client cannot read this compression type."
    STALE_BROKER_EPOCH = 77, FATAL, "The broker has registered again since the request was sent."
    OFFSET_NOT_AVAILABLE = 78, RETRIABLE, "The new leader has not yet found its high watermark."
    MEMBER_ID_REQUIRED = 79, FATAL, "Join again, with the member id that comes with this error."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, RETRIABLE, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, FATAL, "The group has its maximum number of members."
    FENCED_INSTANCE_ID = 82, FATAL, "Another member has taken over this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, RETRIABLE, "No replica that may become leader is available."
    ELECTION_NOT_NEEDED = 84, RETRIABLE, "The partition already has the leader that it should have."
    NO_REASSIGNMENT_IN_PROGRESS = 85, FATAL, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, FATAL, "The group is subscribed to the topic, so its offsets stay."
    INVALID_RECORD = 87, FATAL, "The broker rejects a record of the batch."
    UNSTABLE_OFFSET_COMMIT = 88, RETRIABLE, "An offset of the partition is part of an unfinished transaction."
    THROTTLING_QUOTA_EXCEEDED = 89, RETRIABLE, "The quota is used up."
    PRODUCER_FENCED = 90, FATAL, "Another producer has taken over."
    RESOURCE_NOT_FOUND = 91, FATAL, "There is no such resource."
    DUPLICATE_RESOURCE = 92, FATAL, "The request names a resource twice, or the resource exists already."
    UNACCEPTABLE_CREDENTIAL = 93, FATAL, "The credential is not acceptable."
    INCONSISTENT_VOTER_SET = 94, FATAL, "The candidate is not among the voters."
    INVALID_UPDATE_VERSION = 95, FATAL, "The version to update to is not allowed."
    FEATURE_UPDATE_FAILED = 96, FATAL, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, FATAL, "The principal of a forwarded request cannot be read."
    SNAPSHOT_NOT_FOUND = 98, FATAL, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, FATAL, "The position is outside of the snapshot."
    UNKNOWN_TOPIC_ID = 100, RETRIABLE, "The broker knows no topic with this id."
    DUPLICATE_BROKER_REGISTRATION = 101, FATAL, "Another live broker has this id."
    BROKER_ID_NOT_REGISTERED = 102, FATAL, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, RETRIABLE, "The topic id is not the one in the broker's log."
    INCONSISTENT_CLUSTER_ID = 104, FATAL, "The request belongs to another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, FATAL, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, RETRIABLE, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, FATAL, "A replica of the proposed ISR may not be in it."
    NEW_LEADER_ELECTED = 108, FATAL, "The change of the ISR also elected a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, FATAL, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, FATAL, "The member's epoch is outdated: join again."
    UNRELEASED_INSTANCE_ID = 111, FATAL, "Another member still uses this group instance id."
    UNSUPPORTED_ASSIGNOR = 112, FATAL, "The group's coordinator has no such assignor."
    STALE_MEMBER_EPOCH = 113, FATAL, "The member's epoch is behind: send the heartbeat first."
    MISMATCHED_ENDPOINT_TYPE = 114, FATAL, "The request was sent to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, FATAL, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, FATAL, "There is no such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, FATAL, "The telemetry subscription is not the current one."
    TELEMETRY_TOO_LARGE = 118, FATAL, "The telemetry is larger than the broker allows."
    INVALID_REGISTRATION = 119, FATAL, "The controller refuses the broker's registration."
    TRANSACTION_ABORTABLE = 120, FATAL, "The transaction must be aborted; the producer may continue."
    INVALID_RECORD_STATE = 121, FATAL, "The record's state forbids this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, RETRIABLE, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, RETRIABLE, "The share session's epoch is not the expected one."
    FENCED_STATE_EPOCH = 124, FATAL, "The share coordinator's state epoch is outdated."
    INVALID_VOTER_KEY = 125, FATAL, "The voter's key does not match."
    DUPLICATE_VOTER = 126, FATAL, "The voter already exists."
    VOTER_NOT_FOUND = 127, FATAL, "There is no such voter."
    INVALID_REGULAR_EXPRESSION = 128, FATAL, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = (
        129,
        FATAL,
        "The client's metadata is stale: start again from the bootstrap servers.",
    )
    STREAMS_INVALID_TOPOLOGY = 130, FATAL, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, FATAL, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, FATAL, "The topology's epoch is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, RETRIABLE, "The broker has its maximum number of share sessions."

    OWNERSHIP_FENCED = 10_000, FATAL, "This owner has lost the resource and must stop using it."
    STALE_GENERATION = 10_001, FATAL, "The resource's generation is higher than the one in the claim."
    RESOURCE_OWNED = 10_002, FATAL, "Another owner has the resource, and the claim does not take it over."
    CLAIM_QUEUED = 10_003, RETRIABLE, "The claim waits in the queue of the resource."
    INVALID_GENERATION = 10_004, FATAL, "The generation is outside the range that may be claimed."
    OFFSET_MISMATCH = 10_005, FATAL, "The log does not end at the expected offset."
    OWNERSHIP_DETACHED = 10_006, FATAL, "The owner has lost its connection: resume on this one."
    KEY_VERSION_MISMATCH = 10_007, FATAL, "The last record with a key is not at the expected offset."
    APPEND_ID_UNKNOWN = (
        10_008,
        FATAL,
        "The broker cannot tell whether the log has an append with this id; nothing was appended.",
    )


class BrokerError(Exception):
    """An error with a code of the protocol, received from a broker or to be sent by one.

    `code` is the row of the table. `message` is the given text, else the row's; it is cut after
    `MESSAGE_LENGTH_MAX` characters. `error_for` chooses the subclass that belongs to a code.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        message = message or code.message
        if len(message) > MESSAGE_LENGTH_MAX:
            message = message[: MESSAGE_LENGTH_MAX - 1] + "…"
        self.message = message

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed when it is sent again, perhaps to another broker."""
        return self.code.retriable

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class OffsetOutOfRangeError(BrokerError):
    """The offset was deleted by retention, or was never written."""


class CorruptMessageError(BrokerError):
    """A record batch fails its checksum or is otherwise damaged."""


class UnknownTopicOrPartitionError(BrokerError):
    """The cluster has no such topic or partition, or the broker does not know it yet."""


class NotLeaderOrFollowerError(BrokerError):
    """The partition has moved to another leader: fetch metadata and ask there."""


class LeaderNotAvailableError(BrokerError):
    """The partition currently has no leader."""


class RequestTimedOutError(BrokerError):
    """The request did not finish within its timeout. A write may or may not have happened."""


class MessageTooLargeError(BrokerError):
    """The record batch is larger than the topic allows."""


class NotCoordinatorError(BrokerError):
    """Another broker, or currently none, coordinates the group."""


class InvalidTopicError(BrokerError):
    """The topic name is not allowed."""


class NotEnoughReplicasError(BrokerError):
    """Fewer replicas are in sync than min.insync.replicas. The code says whether anything was written."""


class GroupRebalanceError(BrokerError):
    """The group has removed the member or is rebalancing: join again."""


class FencedInstanceIdError(BrokerError):
    """Another consumer with the same `group.instance.id` has taken this one's place; this one must stop."""


class GroupNotEmptyError(BrokerError):
    """The group still has members."""


class GroupNotFoundError(BrokerError):
    """There is no such group."""


class AuthorizationError(BrokerError):
    """The principal may not do this."""


class AuthenticationError(BrokerError):
    """The broker did not accept the credentials."""


class UnsupportedVersionError(BrokerError):
    """The broker supports no version of the API that can carry the request."""


class TopicExistsError(BrokerError):
    """A topic with this name already exists."""


class InvalidConfigError(BrokerError):
    """A configuration value is not allowed."""


class PolicyViolationError(BrokerError):
    """A setting of the topic or a policy of the broker forbids the request: for example a write to a
    partition that another client owns."""


class NotControllerError(BrokerError):
    """The broker is not, or no longer, the controller."""


class InvalidRequestError(BrokerError):
    """The request contradicts itself or the protocol."""


class OutOfOrderSequenceError(BrokerError):
    """Records of this idempotent producer before the batch are missing."""


class ProducerFencedError(BrokerError):
    """Another producer has taken over; this one can no longer write."""


class OwnershipFencedError(BrokerError):
    """The owner has lost the resource: another owner took it, or the session ended. Clients do not claim it
    again on their own."""


class OwnershipRefusedError(BrokerError):
    """The claim was refused: the resource's generation is higher, or another owner has it."""


class OwnershipDetachedError(BrokerError):
    """The owner still has the resource, but on another connection: resume it."""


class ClaimQueuedError(BrokerError):
    """The claim is not granted yet: it waits in the queue."""


class OffsetMismatchError(BrokerError):
    """The log did not end at the expected offset, and nothing was appended (KIP-27).

    `next_offset` is the offset where it ends; everything before it is committed. `last_leader_epoch` is the
    leader epoch of its last record. `append_ids_from`, for an append with an id: the broker remembers the ids
    of all appends from this offset on, and so knows that this one is not there. All are -1 if the broker did
    not say.
    """

    def __init__(
        self,
        code: ErrorCode = ErrorCode.OFFSET_MISMATCH,
        message: str | None = None,
        next_offset: int = -1,
        last_leader_epoch: int = -1,
        append_ids_from: int = -1,
    ) -> None:
        super().__init__(code, message)
        self.next_offset = next_offset
        self.last_leader_epoch = last_leader_epoch
        self.append_ids_from = append_ids_from


class AppendIdUnknownError(BrokerError):
    """The broker cannot tell whether the log has an append with this id, and nothing was appended.

    It remembers the ids of all appends from offset `append_ids_from` on, and this one is not among them. It
    may be before: look for it there, in the header `holdfast.append.id` of the records from the append's
    `unused_before` on. If it is not there, send the append again with `unused_before=append_ids_from`. The
    log ends at `next_offset`, and everything before that is committed; the leader epoch of its last record is
    `last_leader_epoch`.
    """

    def __init__(
        self,
        code: ErrorCode = ErrorCode.APPEND_ID_UNKNOWN,
        message: str | None = None,
        next_offset: int = -1,
        last_leader_epoch: int = -1,
        append_ids_from: int = -1,
    ) -> None:
        super().__init__(code, message)
        self.next_offset = next_offset
        self.last_leader_epoch = last_leader_epoch
        self.append_ids_from = append_ids_from


class KeyVersionMismatchError(BrokerError):
    """The last record with a key was not at the expected offset, and nothing was appended.

    `versions` has, for each record whose expectation failed, its index in the batch and the offset of the
    last record with its key; -1 if there is none. What they name is committed.
    """

    def __init__(
        self,
        code: ErrorCode = ErrorCode.KEY_VERSION_MISMATCH,
        message: str | None = None,
        versions: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__(code, message)
        self.versions = tuple(versions)

    @property
    def version(self) -> int:
        """The version of the key of the first such record; of the message, if it was sent with an
        `expected_version`."""
        return self.versions[0][1] if self.versions else -1


class InvalidRecordError(BrokerError):
    """The broker rejects records of a batch, and nothing of the batch was appended.

    `records` has the index in the batch and the reason of each rejected record that the broker named.
    """

    def __init__(
        self,
        code: ErrorCode = ErrorCode.INVALID_RECORD,
        message: str | None = None,
        records: Sequence[tuple[int, str | None]] = (),
    ) -> None:
        super().__init__(code, message)
        self.records = tuple(records)


class OperationNotAttemptedError(BrokerError):
    """Another part of the request failed, so this part was not tried."""


class StorageError(BrokerError):
    """The broker's disk failed."""


class FencedLeaderEpochError(BrokerError):
    """The leader epoch in the request is older than the broker's: fetch metadata and retry."""


class UnknownLeaderEpochError(BrokerError):
    """The leader epoch in the request is newer than the broker's: retry later."""


class InvalidRegularExpressionError(BrokerError):
    """The brokers cannot use the regular expression of a group's member: it is not in RE2's syntax, or they
    lack the extra `regex`."""


class QuotaExceededError(BrokerError):
    """The quota is used up."""


_EXCEPTIONS: dict[ErrorCode, type[BrokerError]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.CORRUPT_MESSAGE: CorruptMessageError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartitionError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicOrPartitionError,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: NotLeaderOrFollowerError,
    ErrorCode.LEADER_NOT_AVAILABLE: LeaderNotAvailableError,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimedOutError,
    ErrorCode.MESSAGE_TOO_LARGE: MessageTooLargeError,
    ErrorCode.RECORD_LIST_TOO_LARGE: MessageTooLargeError,
    ErrorCode.INVALID_RECORD: InvalidRecordError,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: NotCoordinatorError,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: NotCoordinatorError,
    ErrorCode.NOT_COORDINATOR: NotCoordinatorError,
    ErrorCode.INVALID_TOPIC_EXCEPTION: InvalidTopicError,
    ErrorCode.NOT_ENOUGH_REPLICAS: NotEnoughReplicasError,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicasError,
    ErrorCode.ILLEGAL_GENERATION: GroupRebalanceError,
    ErrorCode.UNKNOWN_MEMBER_ID: GroupRebalanceError,
    ErrorCode.REBALANCE_IN_PROGRESS: GroupRebalanceError,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstanceIdError,
    ErrorCode.NON_EMPTY_GROUP: GroupNotEmptyError,
    ErrorCode.GROUP_ID_NOT_FOUND: GroupNotFoundError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersionError,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicExistsError,
    ErrorCode.INVALID_CONFIG: InvalidConfigError,
    ErrorCode.POLICY_VIOLATION: PolicyViolationError,
    ErrorCode.NOT_CONTROLLER: NotControllerError,
    ErrorCode.INVALID_REQUEST: InvalidRequestError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequenceError,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    ErrorCode.PRODUCER_FENCED: ProducerFencedError,
    ErrorCode.OPERATION_NOT_ATTEMPTED: OperationNotAttemptedError,
    ErrorCode.KAFKA_STORAGE_ERROR: StorageError,
    ErrorCode.FENCED_LEADER_EPOCH: FencedLeaderEpochError,
    ErrorCode.UNKNOWN_LEADER_EPOCH: UnknownLeaderEpochError,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: QuotaExceededError,
    ErrorCode.INVALID_REGULAR_EXPRESSION: InvalidRegularExpressionError,
    ErrorCode.OWNERSHIP_FENCED: OwnershipFencedError,
    ErrorCode.STALE_GENERATION: OwnershipRefusedError,
    ErrorCode.RESOURCE_OWNED: OwnershipRefusedError,
    ErrorCode.INVALID_GENERATION: OwnershipRefusedError,
    ErrorCode.CLAIM_QUEUED: ClaimQueuedError,
    ErrorCode.OFFSET_MISMATCH: OffsetMismatchError,
    ErrorCode.APPEND_ID_UNKNOWN: AppendIdUnknownError,
    ErrorCode.KEY_VERSION_MISMATCH: KeyVersionMismatchError,
    ErrorCode.OWNERSHIP_DETACHED: OwnershipDetachedError,
}


def error_for(code: int, message: str | None = None) -> BrokerError:
    """The exception for an error code, of the code's subclass of BrokerError.

    An unknown code becomes UNKNOWN_SERVER_ERROR, with the number in its text.
    """
    try:
        row = ErrorCode(code)
    except ValueError:
        unknown = f"error code {code}" if message is None else f"error code {code}: {message}"
        return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, unknown)
    return _EXCEPTIONS.get(row, BrokerError)(row, message)
