"""The options of Apache Kafka 3.9's command-line tools, and those that Holdfast's scripts leave out.

`tests/compat/test_kafka_options.py` compares the former with what Kafka's own tools print.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

EVERYWHERE = frozenset(("help", "version"))
"""Options of each tool."""


@dataclass(frozen=True, slots=True)
class KafkaTool:
    """A tool of Kafka's: its class, and its options without `--`. `command` is our click command."""

    main_class: str
    command: str
    options: frozenset[str]


def _tool(main_class: str, command: str, options: str) -> KafkaTool:
    return KafkaTool(main_class, f"holdfast_log.{command}", frozenset(options.split()))


_TOOLS = "org.apache.kafka.tools."
TOOLS: Mapping[str, KafkaTool] = {
    "topics": _tool(
        f"{_TOOLS}TopicCommand", "clients.tools.topics:topics",
        "alter at-min-isr-partitions bootstrap-server command-config config create delete "
        "delete-config describe exclude-internal if-exists if-not-exists list "
        "partition-size-limit-per-response partitions replica-assignment replication-factor topic "
        "topic-id topics-with-overrides unavailable-partitions under-min-isr-partitions "
        "under-replicated-partitions",
    ),
    "configs": _tool(
        "kafka.admin.ConfigCommand", "clients.tools.configs:configs",
        "add-config add-config-file all alter bootstrap-controller bootstrap-server broker "
        "broker-defaults broker-logger client client-defaults command-config "
        "delete-config describe entity-default entity-name entity-type force ip ip-defaults "
        "topic user user-defaults zk-tls-config-file zookeeper",
    ),
    "consumer-groups": _tool(
        f"{_TOOLS}consumer.group.ConsumerGroupCommand", "clients.tools.consumer_groups:consumer_groups",
        "all-groups all-topics bootstrap-server by-duration command-config delete delete-offsets "
        "describe dry-run execute export from-file group list members offsets reset-offsets shift-by "
        "state timeout to-current to-datetime to-earliest to-latest to-offset topic type verbose",
    ),
    "console-producer": _tool(
        "kafka.tools.ConsoleProducer", "clients.tools.console_producer:console_producer",
        "batch-size bootstrap-server broker-list compression-codec line-reader max-block-ms "
        "max-memory-bytes max-partition-memory-bytes message-send-max-retries metadata-expiry-ms "
        "producer-property producer.config property reader-config request-required-acks "
        "request-timeout-ms retry-backoff-ms socket-buffer-size sync timeout topic",
    ),
    "console-consumer": _tool(
        f"{_TOOLS}consumer.ConsoleConsumer", "clients.tools.console_consumer:console_consumer",
        "bootstrap-server consumer-property consumer.config enable-systest-events formatter "
        "formatter-config from-beginning group include isolation-level key-deserializer max-messages "
        "offset partition property skip-message-on-error timeout-ms topic value-deserializer whitelist",
    ),
    "acls": _tool(
        "kafka.admin.AclCommand", "clients.tools.acls:acls",
        "add allow-host allow-principal authorizer authorizer-properties "
        "bootstrap-server cluster command-config consumer delegation-token deny-host deny-principal "
        "force group idempotent list operation principal producer remove resource-pattern-type topic "
        "transactional-id user-principal zk-tls-config-file",
    ),
    "delete-records": _tool(
        f"{_TOOLS}DeleteRecordsCommand", "clients.tools.delete_records:delete_records",
        "bootstrap-server command-config offset-json-file",
    ),
    "get-offsets": _tool(
        f"{_TOOLS}GetOffsetShell", "clients.tools.get_offsets:get_offsets",
        "bootstrap-server broker-list command-config exclude-internal-topics partitions time topic "
        "topic-partitions",
    ),
    "log-dirs": _tool(
        f"{_TOOLS}LogDirsCommand", "clients.tools.log_dirs:log_dirs",
        "bootstrap-server broker-list command-config describe topic-list",
    ),
    "reassign-partitions": _tool(
        f"{_TOOLS}reassign.ReassignPartitionsCommand",
        "clients.tools.reassign_partitions:reassign_partitions",
        "additional bootstrap-server broker-list cancel command-config "
        "disable-rack-aware execute generate list preserve-throttles reassignment-json-file "
        "replica-alter-log-dirs-throttle throttle timeout topics-to-move-json-file verify",
    ),
    "leader-election": _tool(
        f"{_TOOLS}LeaderElectionCommand", "clients.tools.leader_election:leader_election",
        "admin.config all-topic-partitions bootstrap-server election-type partition path-to-json-file "
        "topic",
    ),
    "broker-api-versions": _tool(
        "kafka.admin.BrokerApiVersionsCommand", "clients.tools.broker_api_versions:broker_api_versions",
        "bootstrap-server command-config",
    ),
    "dump-log": _tool(
        "kafka.tools.DumpLogSegments", "broker.tools.dump_log:main",
        "cluster-metadata-decoder deep-iteration files index-sanity-check key-decoder-class max-bytes "
        "max-message-size offsets-decoder print-data-log remote-log-metadata-decoder "
        "skip-record-metadata transaction-log-decoder value-decoder-class "
        "verify-index-only",
    ),
    "consumer-perf-test": _tool(
        f"{_TOOLS}ConsumerPerformance", "clients.tools.consumer_perf_test:consumer_perf_test",
        "bootstrap-server broker-list consumer.config date-format fetch-size from-latest group "
        "hide-header messages num-fetch-threads print-metrics reporting-interval show-detailed-stats "
        "socket-buffer-size threads timeout topic",
    ),
    "producer-perf-test": _tool(
        f"{_TOOLS}ProducerPerformance", "clients.tools.producer_perf_test:producer_perf_test",
        "num-records payload-delimiter payload-file payload-monotonic print-metrics producer-props "
        "producer.config record-size throughput topic transaction-duration-ms transactional-id",
    ),
    "verifiable-producer": _tool(
        f"{_TOOLS}VerifiableProducer", "clients.tools.verifiable_producer:verifiable_producer",
        "acks bootstrap-server broker-list max-messages message-create-time producer.config "
        "repeating-keys throughput topic value-prefix",
    ),
    "verifiable-consumer": _tool(
        f"{_TOOLS}VerifiableConsumer", "clients.tools.verifiable_consumer:verifiable_consumer",
        "assignment-strategy bootstrap-server broker-list consumer.config enable-autocommit group-id "
        "group-instance-id group-protocol group-remote-assignor max-messages reset-policy "
        "session-timeout topic verbose",
    ),
    "transactions": _tool(
        f"{_TOOLS}TransactionsCommand", "clients.tools.transactions:transactions",
        "bootstrap-server command-config",
    ),
    "transactions list": _tool(
        f"{_TOOLS}TransactionsCommand", "clients.tools.transactions:transactions list", "duration-filter"
    ),
    "transactions describe": _tool(
        f"{_TOOLS}TransactionsCommand", "clients.tools.transactions:transactions describe", "transactional-id"
    ),
    "transactions describe-producers": _tool(
        f"{_TOOLS}TransactionsCommand", "clients.tools.transactions:transactions describe-producers",
        "broker-id topic partition",
    ),
    "transactions abort": _tool(
        f"{_TOOLS}TransactionsCommand", "clients.tools.transactions:transactions abort",
        "topic partition start-offset producer-id producer-epoch coordinator-epoch",
    ),
    "transactions find-hanging": _tool(
        f"{_TOOLS}TransactionsCommand", "clients.tools.transactions:transactions find-hanging",
        "broker-id max-transaction-timeout topic partition",
    ),
}  # fmt: skip
"""By the name of the script, and of its command."""

LEFT_OUT: Mapping[str, str] = {
    "acls": "authorizer authorizer-properties zk-tls-config-file",
    "configs": "bootstrap-controller zk-tls-config-file zookeeper",
    "console-consumer": "enable-systest-events",
    "consumer-perf-test": "date-format num-fetch-threads threads",
    "dump-log": "cluster-metadata-decoder key-decoder-class remote-log-metadata-decoder value-decoder-class",
    "topics": "delete-config partition-size-limit-per-response",
}
"""Options of Kafka's that a script of ours does not have; docs/tools.md says why."""


def own_options(tool: KafkaTool) -> set[str]:
    """The options of our command, without `--`."""
    place, *subcommands = tool.command.split()
    module, _, attribute = place.partition(":")
    command: Any = getattr(import_module(module), attribute)
    for name in subcommands:
        command = command.commands[name]
    return set(_names(command))


def _names(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith("--"):
                yield name.removeprefix("--")
