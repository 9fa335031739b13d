"""Describing brokers, and the APIs they support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.connection.cluster_view import Node
from holdfast_log.clients.connection.connection import ANY_NODE
from holdfast_log.clients.connection.conversation import CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.describe_cluster import DescribeClusterRequest


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The live brokers. `controller` is None while none is elected."""

    cluster_id: str | None
    nodes: tuple[Node, ...]
    controller: Node | None


@dataclass(frozen=True, slots=True)
class ApiSupport:
    """The versions of one API that a broker supports; None if it does not support the API.

    `usable_version` is the version that this client would use, None if the two share none. `name` is None for
    an API that this client does not know.
    """

    key: int
    name: str | None
    min_version: int | None
    max_version: int | None
    usable_version: int | None


@dataclass(frozen=True, slots=True)
class BrokerSupport:
    """The APIs that a broker supports, by key, and the range of versions of each feature."""

    apis: tuple[ApiSupport, ...]
    features: Mapping[str, tuple[int, int]]


def describe_cluster(asking: Asking) -> ClusterDescription:
    """The live brokers, and the controller."""
    response = asking.ask(
        ANY_NODE,
        DescribeClusterRequest(include_cluster_authorized_operations=False),
        lambda answer: [answer.error_code],
    )
    raise_first([("cluster", response.error_code, response.error_message)])
    nodes = tuple(
        sorted(
            (Node(row.broker_id, row.host, row.port, row.rack) for row in response.brokers),
            key=lambda node: node.id,
        )
    )
    controller = next((node for node in nodes if node.id == response.controller_id), None)
    return ClusterDescription(response.cluster_id, nodes, controller)


def describe_api_versions(asking: Asking, node: int) -> BrokerSupport:
    """The APIs and features of a broker. An API that the broker lacks is listed without versions."""
    request = ApiVersionsRequest(
        client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
    )
    response = asking.ask(node, request)
    raise_first([(f"broker {node}", response.error_code, None)])
    theirs = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    for_clients = {key for key, api in APIS.items() if not api.internal and api.feature is None}
    apis = tuple(_support(key, theirs.get(key)) for key in sorted(theirs.keys() | for_clients))
    features = {row.name: (row.min_version, row.max_version) for row in response.supported_features}
    return BrokerSupport(apis, features)


def _support(key: int, theirs: tuple[int, int] | None) -> ApiSupport:
    api = APIS.get(key)
    name = None if api is None else api.name
    if theirs is None:
        return ApiSupport(key, name, None, None, None)
    low, high = theirs
    usable = None
    if api is not None and max(low, api.sent.first) <= min(high, api.sent.last):
        usable = min(high, api.sent.last)
    return ApiSupport(key, name, low, high, usable)
