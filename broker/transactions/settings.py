"""The settings of transactions, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.clients.settings import Setting, SettingType
from holdfast_log.coordinator.transactions.settings import TransactionSettings

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "transaction.max.timeout.ms",
        SettingType.INT,
        15 * 60 * 1000,
        "Longest transaction timeout in ms that a producer may request; a longer one is refused with "
        "INVALID_TRANSACTION_TIMEOUT. A transaction that is open for longer than its producer's timeout is "
        "aborted, so that readers of committed records do not wait for it.",
        minimum=1,
    ),
    Setting(
        "transactional.id.expiration.ms",
        SettingType.INT,
        7 * 24 * 60 * 60 * 1000,
        "Time in ms after its last transaction for which a transactional id is remembered. A producer that "
        "goes on after it has to ask for a producer id again.",
        minimum=1,
    ),
    Setting(
        "transaction.version",
        SettingType.INT,
        1,
        "The version of the feature transaction.version that is announced to clients. 0: records of "
        "`__transaction_state` in their first version. 1: in the flexible one, which keeps what producers "
        "need that get a new epoch with each transaction. 2: clients that can do so get one, and name no "
        "partitions beforehand (KIP-890): a late batch of an earlier transaction is always refused. It must "
        "be the same in all brokers.",
        minimum=0,
        maximum=2,
    ),
    Setting(
        "transaction.state.max.bytes",
        SettingType.LONG,
        64 * 1024 * 1024,
        "Maximum bytes in memory of the transactional ids that this broker coordinates: 400 for each with "
        "its name, and 150 for each partition of an open transaction. Further ones are refused with "
        "POLICY_VIOLATION.",
        minimum=1,
    ),
    Setting(
        "transaction.state.max.bytes.per.source",
        SettingType.LONG,
        16 * 1024 * 1024,
        "Maximum bytes of `transaction.state.max.bytes` for the transactional ids of one source: of a "
        "principal, or of an address whose clients have none. A source with more gets POLICY_VIOLATION for "
        "new ids and partitions; others go on.",
        minimum=1,
    ),
    Setting(
        "transaction.max.partitions",
        SettingType.INT,
        10_000,
        "Maximum number of partitions of one open transaction. A request to add more is refused with "
        "POLICY_VIOLATION: the coordinator stores all of them again whenever one is added.",
        minimum=1,
    ),
    Setting(
        "transaction.state.log.num.partitions",
        SettingType.INT,
        50,
        "Number of partitions with which `__transaction_state` is created. It cannot be changed afterwards.",
        minimum=1,
        maximum=100_000,
    ),
    Setting(
        "transaction.state.log.replication.factor",
        SettingType.INT,
        3,
        "Number of replicas with which `__transaction_state` is created. While there are fewer brokers it is "
        "not created, and transactional producers are refused with COORDINATOR_NOT_AVAILABLE.",
        minimum=1,
        maximum=2**15 - 1,
    ),
    Setting(
        "transaction.state.log.min.isr",
        SettingType.INT,
        2,
        "The `min.insync.replicas` with which `__transaction_state` is created: how many replicas must have "
        "the decision about a transaction before the producer is answered.",
        minimum=1,
        maximum=2**15 - 1,
    ),
    Setting(
        "transaction.state.log.segment.bytes",
        SettingType.INT,
        100 * 1024 * 1024,
        "The `segment.bytes`, in bytes, with which `__transaction_state` is created: small, so that the "
        "topic can be compacted early and loaded fast.",
        minimum=14,
    ),
    Setting(
        "transaction.state.log.load.buffer.size",
        SettingType.INT,
        5 * 1024 * 1024,
        "Maximum bytes of `__transaction_state` that a broker reads at once when it becomes the coordinator "
        "of transactions. A larger batch is still read.",
        minimum=1,
    ),
)


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class TransactionsTopicSettings:
    """Settings with which `__transaction_state` is created."""

    partitions: Annotated[int, "transaction.state.log.num.partitions"]
    replication_factor: Annotated[int, "transaction.state.log.replication.factor"]
    min_in_sync: Annotated[int, "transaction.state.log.min.isr"]
    segment_bytes: Annotated[int, "transaction.state.log.segment.bytes"]


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class TransactionVersionSetting:
    """The version of transactions that clients may use."""

    version: Annotated[int, "transaction.version"]


def transaction_settings(settings: Mapping[str, Any]) -> TransactionSettings:
    """The settings of the transaction coordinator."""
    return TransactionSettings(
        max_timeout_ms=settings["transaction.max.timeout.ms"],
        id_expiration_ms=settings["transactional.id.expiration.ms"],
        version=settings["transaction.version"],
        state_bytes_max=settings["transaction.state.max.bytes"],
        source_bytes_max=settings["transaction.state.max.bytes.per.source"],
        partitions_max=settings["transaction.max.partitions"],
    )
