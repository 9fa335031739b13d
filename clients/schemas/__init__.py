"""Serializers and deserializers that check values against a schema: Avro and JSON Schema, without a registry.

    value = AvroSchema.from_file("order.avsc")
    Producer(properties, value_serializer=value.serialize)
    Consumer(properties, value_deserializer=value.deserialize)

Need the extra `schemas`. A value is the encoded bytes alone, without a schema's id, so both sides must have
the schema.
"""
