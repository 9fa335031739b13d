"""Values checked against a schema, from a producer to a consumer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import RecordDeserializationError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

pytest.importorskip("fastavro")
pytest.importorskip("jsonschema")

from holdfast_log.clients.schemas.avro import AvroSchema
from holdfast_log.clients.schemas.json_schema import JsonSchema

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
JSON = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    "required": ["id", "item"],
}
ORDER = {"id": 1, "item": "café"}


def schema(kind: str, directory: Path) -> Any:
    """The schema, from a file."""
    path = directory / "order"
    path.write_text(json.dumps(AVRO if kind == "avro" else JSON))
    return AvroSchema.from_file(path) if kind == "avro" else JsonSchema.from_file(path)


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_values_that_fit_are_moved_and_others_refused_on_both_sides(kind: str, tmp_path: Path) -> None:
    orders = schema(kind, tmp_path)
    cluster = FakeCluster()
    cluster.add_topic("orders")
    where = {"bootstrap.servers": cluster.bootstrap}
    producer = Producer(where, value_serializer=orders.serialize, network=cluster, is_threaded=False)
    for wrong in ({"id": "one", "item": "tea"}, {"id": 1}):
        with pytest.raises(Exception, match=r"id|item|one"):
            producer.send(Message("orders", value=wrong))
    producer.send(Message("orders", value=ORDER))
    producer.send(Message("orders", value=None))
    producer.flush()
    plain = Producer(where, network=cluster, is_threaded=False)
    plain.send(Message("orders", value=b"\x02"))
    plain.flush()

    settings = {**where, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings, value_deserializer=orders.deserialize, network=cluster)
    consumer.add_topic("orders")
    assert [record.value for record in consumer.poll(1000)] == [ORDER, None]
    with pytest.raises(RecordDeserializationError):
        consumer.poll(1000)


def test_avro_reads_what_an_older_schema_wrote_and_refuses_bytes_that_remain() -> None:
    newer = {**AVRO, "fields": [*AVRO["fields"], {"name": "count", "type": "int", "default": 1}]}
    data = AvroSchema(AVRO).serialize("orders", ORDER)
    assert data is not None

    assert AvroSchema(newer, written=AVRO).deserialize("orders", data) == {**ORDER, "count": 1}
    with pytest.raises(ValueError, match="2 bytes follow"):
        AvroSchema(AVRO).deserialize("orders", data + b"..")


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(Exception, match="strange"):
        AvroSchema({"type": "strange"})
    with pytest.raises(Exception, match="strange"):
        JsonSchema({"type": "strange"})
