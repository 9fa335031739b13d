"""The APIs and versions of Apache Kafka in docs/protocol.md are those that its brokers advertise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import KRAFT_VERSION, VERSION, KafkaBroker, KraftBroker
from holdfast_log.coordinator.tools.zookeeper_process import HOST, free_port
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.kafka_apis import KAFKA_3, KAFKA_4
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from tests.compat.apache_kafka import class_path
from tests.integration.raw_socket import RawSocket

DOCUMENTED = {VERSION: KAFKA_3, KRAFT_VERSION: KAFKA_4}


@pytest.fixture(params=DOCUMENTED)
def kafka(request: pytest.FixtureRequest, zookeeper: str, tmp_path: Path) -> Iterator[KafkaBroker]:
    version = request.param
    class_path(version)
    if version == VERSION:
        broker = KafkaBroker(tmp_path / "kafka", broker_id=1, zookeeper_connect=zookeeper)
    else:
        broker = KraftBroker(tmp_path / "kafka", broker_id=1, voters={1: f"{HOST}:{free_port()}"})
    broker.start()
    try:
        broker.wait_ready()
        yield broker
    finally:
        broker.stop()


def test_the_documented_versions_are_those_that_kafka_advertises(kafka: KafkaBroker) -> None:
    with RawSocket(kafka.port) as connection:
        asking = ApiVersionsRequest(client_software_name="holdfast", client_software_version="1")
        response = connection.call(asking, 3)
    assert response.error_code == ErrorCode.NONE
    advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert dict(sorted(advertised.items())) == DOCUMENTED[kafka.version]
