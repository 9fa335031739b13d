"""The same values give the same bytes as in kio, whose codecs are generated from Kafka's own schemas.

Both ways: our bytes are kio's bytes, and each side reads what the other wrote. kio knows the versions that
Kafka 4 speaks. What it lacks is listed here, and checked in test_golden_bytes.py instead.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import re
import types
import typing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from holdfast_log.protocol.api import API_VERSIONS_KEY
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.fields import Array, Field, Struct, WireType, fields_of
from holdfast_log.protocol.messages.produce import FIRST_OWN_TAG
from holdfast_log.protocol.schema import ProtocolMessage, decode, encode
from tests.protocol.strategies import every_version, messages, version_id

FIRST_OWN_KEY = 30000
"""From here on the keys are Holdfast's, so nobody else has a codec for them."""

NOT_IN_KIO = {
    # Removed in Kafka 4.0. Declared so that their senders get an error that they can read.
    ("Produce", 0),
    ("Produce", 1),
    ("Produce", 2),
    ("DescribeLogDirs", 0),
    ("CreateDelegationToken", 0),
    ("RenewDelegationToken", 0),
    ("ExpireDelegationToken", 0),
    ("DescribeDelegationToken", 0),
    # Spoken between brokers before Kafka 4.0.
    ("LeaderAndIsr", 5),
    ("LeaderAndIsr", 6),
    ("LeaderAndIsr", 7),
    ("StopReplica", 3),
    ("StopReplica", 4),
    ("UpdateMetadata", 7),
    ("UpdateMetadata", 8),
    ("ControlledShutdown", 3),
    ("WriteTxnMarkers", 0),
    # Newer than kio.
    ("GetReplicaLogInfo", 0),
}

SHARED = [
    (cls, version)
    for cls, version in every_version()
    if (cls.api.name, version) not in NOT_IN_KIO and cls.api.key < FIRST_OWN_KEY  # type: ignore[attr-defined]
]
QUICK = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))

DATETIMES = {
    "log_append_time_ms",
    "transaction_start_time_ms",
    "issue_timestamp_ms",
    "expiry_timestamp_ms",
    "max_timestamp_ms",
}
LONG_DURATIONS = {
    "retention_time_ms",
    "session_lifetime_ms",
    "max_lifetime_ms",
    "renew_period_ms",
    "expiry_time_period_ms",
}


def is_own(field: Field) -> bool:
    return field.tag is not None and field.tag >= FIRST_OWN_TAG


def kio_can_hold(field: Field) -> st.SearchStrategy[Any] | None:
    """kio makes Python's enums, datetimes and timedeltas of numbers; these hold less than the numbers do. Of
    Holdfast's own tagged fields, which are left out where they hold their default, it knows nothing."""
    if is_own(field):
        return st.builds(list) if isinstance(field.type, Array) else st.just(field.default)
    if field.name.endswith("error_code"):
        return st.sampled_from([code.value for code in KioErrorCode])
    if field.name in DATETIMES:
        return st.integers(0, 2**42)
    if field.name in LONG_DURATIONS:
        return st.integers(0, 2**42)
    if field.name == "records":
        return st.binary(max_size=300)
    return None


@pytest.mark.parametrize(("cls", "version"), SHARED, ids=version_id)
def test_bytes_are_those_of_kio_and_each_reads_the_other(cls: type[ProtocolMessage], version: int) -> None:
    kio_class = find_kio_class(cls, version)
    read, write = entity_reader(kio_class), entity_writer(kio_class)

    @QUICK
    @given(messages(cls, version, kio_can_hold))
    def same_bytes(message: Any) -> None:
        theirs = to_kio(message, kio_class, version)
        written = io.BytesIO()
        write(written, theirs)

        ours = encode(message, version)

        assert ours == written.getvalue()
        assert decode(cls, version, written.getvalue()) == message
        assert read(ours, 0) == (theirs, len(ours))

    same_bytes()


def test_all_versions_but_the_listed_ones_are_compared() -> None:
    compared = {(cls.api.name, version) for cls, version in SHARED}  # type: ignore[attr-defined]
    declared = {
        (api.name, version) for api in APIS.values() for version in api.versions if api.key < FIRST_OWN_KEY
    }
    assert declared - compared == NOT_IN_KIO


@pytest.mark.parametrize(("cls", "version"), SHARED, ids=version_id)
def test_header_versions_are_those_of_kio(cls: type[ProtocolMessage], version: int) -> None:
    api = cls.api  # type: ignore[attr-defined]
    header = find_kio_class(cls, version).__header_schema__.__version__
    if cls is api.request:
        assert header == (2 if api.has_flexible_request_header(version) else 1)
    else:
        assert header == (1 if api.has_flexible_response_header(version) else 0)
        assert header == 0 or api.key != API_VERSIONS_KEY


def find_kio_class(cls: type[ProtocolMessage], version: int) -> Any:
    """kio has a module for each version of each message."""
    stem = re.sub(r"(Request|Response)$", "", cls.__name__)
    folder = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", stem).lower()
    side = "request" if cls.__name__.endswith("Request") else "response"
    return getattr(importlib.import_module(f"kio.schema.{folder}.v{version}.{side}"), cls.__name__)


def to_kio(message: Any, kio_class: Any, version: int) -> Any:
    """The same message as an object of kio. Both list their fields in the order of Kafka's schema."""
    ours = [field for field in fields_of(type(message)) if version in field.versions and not is_own(field)]
    theirs = dataclasses.fields(kio_class)
    hints = typing.get_type_hints(kio_class)
    assert [field.name.removesuffix("_ms") for field in ours] == [
        field.name.removesuffix("_ms") for field in theirs
    ]
    values = {}
    for field, kio_field in zip(ours, theirs, strict=True):
        value = getattr(message, field.name)
        kafka_type = kio_field.metadata.get("kafka_type")
        values[kio_field.name] = value_to_kio(value, field.type, kafka_type, hints[kio_field.name], version)
    return kio_class(**values)


def value_to_kio(value: Any, type_: WireType, kafka_type: str | None, hint: Any, version: int) -> Any:
    if value is None:
        return None
    match type_:
        case Array(Struct() as element):
            return tuple(value_to_kio(item, element, None, hint, version) for item in value)
        case Array():
            return tuple(value)
        case Struct():
            return to_kio(value, entity_in(hint), version)
    match kafka_type:
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value)
        case "uuid":
            return value if value.int else None
        case _:
            return value


def entity_in(hint: Any) -> Any:
    """The class inside of `tuple[X, ...] | None` and the like."""
    if dataclasses.is_dataclass(hint):
        return hint
    for argument in typing.get_args(hint):
        if argument not in (types.NoneType, Ellipsis) and (found := entity_in(argument)) is not None:
            return found
    return None
