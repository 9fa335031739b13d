"""The settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.connection.connection import ANY_NODE, CONTROLLER
from holdfast_log.protocol.configs import ConfigOperation, ConfigSource, ResourceType
from holdfast_log.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast_log.protocol.messages.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic, or a broker by its id; a broker with an empty name stands for the defaults of all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(defaults)'}"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting in force. `value` is None if it is unset, or secret (`is_sensitive`)."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source in (ConfigSource.DEFAULT, ConfigSource.UNKNOWN)


OF_ONE_BROKER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
"""Resources that only the broker of their name knows."""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one setting."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


def describe_configs(
    asking: Asking, resources: Iterable[ConfigResource], *, include_documentation: bool = False
) -> dict[ConfigResource, list[ConfigEntry]]:
    """The settings in force of topics and brokers, default values included."""
    found: dict[ConfigResource, list[ConfigEntry]] = {}
    for node, asked in _by_node(resources).items():
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=each.type, resource_name=each.name, configuration_keys=None
                )
                for each in asked
            ],
            include_documentation=include_documentation,
        )
        response = asking.ask(node, request, lambda answer: [row.error_code for row in answer.results])
        raise_first((row.resource_name, row.error_code, row.error_message) for row in response.results)
        for row in response.results:
            resource = ConfigResource(ResourceType(row.resource_type), row.resource_name)
            found[resource] = [
                ConfigEntry(
                    each.name,
                    each.value,
                    _source(each.config_source),
                    each.read_only,
                    each.is_sensitive,
                    each.documentation,
                )
                for each in row.configs
            ]
    return found


def alter_configs(
    asking: Asking,
    changes: Mapping[ConfigResource, Iterable[ConfigChange]],
    *,
    validate_only: bool = False,
    absent: Collection[int] = (),
) -> None:
    """Change single settings and leave the others as they are (KIP-339). Raises InvalidConfigError."""
    for node, asked in _by_node(changes, absent).items():
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=each.type,
                    resource_name=each.name,
                    configs=[
                        ConfigAlteration(
                            name=change.name, config_operation=change.operation, value=change.value
                        )
                        for change in changes[each]
                    ],
                )
                for each in asked
            ],
            validate_only=validate_only,
        )
        response = asking.ask(
            CONTROLLER if node == ANY_NODE else node,
            request,
            lambda answer: [row.error_code for row in answer.responses],
        )
        raise_first((row.resource_name, row.error_code, row.error_message) for row in response.responses)


def _by_node(
    resources: Iterable[ConfigResource], absent: Collection[int] = ()
) -> dict[int, list[ConfigResource]]:
    """The resources by the broker to ask: a broker for its own settings, any broker for the rest."""
    divided: dict[int, list[ConfigResource]] = {}
    for each in resources:
        node = int(each.name) if each.type in OF_ONE_BROKER and each.name else ANY_NODE
        node = ANY_NODE if node in absent else node
        divided.setdefault(node, []).append(each)
    return divided


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
