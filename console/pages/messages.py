"""Messages: read from a place, and one message in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from starlette.responses import Response

from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.console.asking.browsing import (
    COUNT_MAX,
    Browsed,
    BrowsePlace,
    BrowseRequest,
    Ending,
    browse,
)
from holdfast_log.console.asking.work import Clients
from holdfast_log.console.decoding import Form, decoded, key_bytes, preview
from holdfast_log.console.pages.page import BadParameter, Visit, address, fail, show, whole
from holdfast_log.protocol.batches import TimestampType

COUNT = 25
_PARTITION_MAX = 2**31 - 1
FORMS = {Form.AUTO: "As it fits", Form.TEXT: "Text", Form.JSON: "JSON", Form.HEX: "Hex"}
PLACES = {
    BrowsePlace.NEWEST: "The newest",
    BrowsePlace.OLDEST: "The oldest",
    BrowsePlace.OFFSET: "An offset",
    BrowsePlace.TIME: "A time",
}
ENDINGS = {
    Ending.END: "",
    Ending.COUNT: "",
    Ending.BYTES: "Reading ended at the limit of bytes for one page.",
    Ending.TIME: "Reading ended at the limit of time for one page.",
}


async def messages_page(visit: Visit) -> Response:
    snapshot = await visit.parts.watch.current()
    topic = visit.text("topic").strip()
    problem, found, request = "", None, None
    try:
        request = wanted(visit)
    except BadParameter as error:
        problem = str(error)
    if request is not None and topic:
        found = await visit.parts.run(partial(_read, visit.parts.clients, visit.visitor.properties, request))
    return await show(
        visit,
        "messages.html",
        "messages",
        f"Messages of {topic}" if topic else "Messages",
        status=400 if problem else 200,
        snapshot=snapshot,
        topic=topic,
        places=PLACES,
        counts=(10, COUNT, 50, 100, COUNT_MAX),
        chosen={
            "partition": visit.text("partition"),
            "place": visit.text("from", BrowsePlace.NEWEST.value),
            "at": visit.text("at"),
            "key": visit.text("key"),
            "count": visit.text("count") or str(COUNT),
        },
        problem=problem,
        found=found,
        request=request,
        lines=[] if found is None or request is None else _lines(request, found),
        ending="" if found is None else ENDINGS[found.ending],
        later=None if found is None or request is None else _later(request, found),
        earlier=None if found is None or request is None else _earlier(request, found),
        known=[row.name for row in snapshot.topic_rows if not row.is_internal][:1000],
    )


def _read(clients: Clients, personal: Mapping[str, Any], request: BrowseRequest) -> Browsed:
    with clients.consumer(personal) as consumer:
        return browse(consumer, request)


def wanted(visit: Visit) -> BrowseRequest:
    """What the address asks for. Raises BadParameter."""
    try:
        place = BrowsePlace(visit.text("from") or BrowsePlace.NEWEST.value)
    except ValueError:
        raise BadParameter("Messages can be read from: newest, oldest, offset, time.") from None
    number = visit.text("partition").strip()
    at = 0
    if place is BrowsePlace.OFFSET:
        at = whole("offset", visit.text("at"), 0)
    elif place is BrowsePlace.TIME:
        at = time_ms(visit.text("at"))
    key_text = visit.text("key")
    try:
        key = key_bytes(key_text) if key_text else None
    except ValueError as error:
        raise BadParameter(f"The key: {error}.") from None
    return BrowseRequest(
        visit.text("topic").strip(),
        whole("partition", number, 0, high=_PARTITION_MAX) if number else None,
        place,
        at,
        whole("count", visit.text("count"), COUNT, 1, COUNT_MAX),
        key,
    )


def time_ms(text: str) -> int:
    """A time, in UTC unless a zone follows, or ms since the epoch. Raises BadParameter."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    try:
        moment = datetime.fromisoformat(text.removesuffix("UTC").strip())
        return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise BadParameter(
            "The time is of the form 2026-01-31 23:59:59, in UTC unless a zone follows, or in ms since 1970."
        ) from None


def _lines(request: BrowseRequest, found: Browsed) -> list[dict[str, Any]]:
    """The messages: who asks for the newest sees the newest first."""
    records = reversed(found.records) if request.place is BrowsePlace.NEWEST else found.records
    return [_line(record) for record in records]


def _line(record: ConsumerRecord) -> dict[str, Any]:
    """What the list shows of a message."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": preview(record.key),
        "value": preview(record.value),
        "size": len(record.value or b""),
        "headers": len(record.headers),
        "address": address("/message", topic=record.topic, partition=record.partition, offset=record.offset),
    }


def _same(request: BrowseRequest, offset: int) -> str:
    key = request.key
    text = None if key is None else "0x" + key.hex()
    return address(
        "/messages", topic=request.topic, partition=request.partition, count=request.count, key=text,
        **{"from": "offset", "at": offset},
    )  # fmt: skip


def _later(request: BrowseRequest, found: Browsed) -> str | None:
    """Where the following messages of a single partition are."""
    (number,) = found.positions if len(found.positions) == 1 else (None,)
    if number is None or found.positions[number] >= found.ends[number]:
        return None
    return _same(replace(request, partition=number), found.positions[number])


def _earlier(request: BrowseRequest, found: Browsed) -> str | None:
    """Where the messages before these of a single partition are; not while a key is searched for."""
    (number,) = found.from_offsets if len(found.from_offsets) == 1 else (None,)
    if number is None or request.key is not None or found.from_offsets[number] <= found.begins[number]:
        return None
    first = found.records[0].offset if found.records else found.from_offsets[number]
    return _same(replace(request, partition=number), max(found.begins[number], first - request.count))


async def message_page(visit: Visit) -> Response:
    """One message: key, headers and value in full."""
    topic, number, offset = (
        visit.needed("topic"),
        visit.whole("partition", 0, high=_PARTITION_MAX),
        visit.whole("offset", 0),
    )
    try:
        form = Form(visit.text("as") or Form.AUTO.value)
    except ValueError:
        raise BadParameter("A message can be shown as: auto, text, json, hex.") from None
    request = BrowseRequest(topic, number, BrowsePlace.OFFSET, offset, 1)
    found = await visit.parts.run(partial(_read, visit.parts.clients, visit.visitor.properties, request))
    record = found.records[0] if found.records else None
    if record is None or record.offset != offset:
        begin, end = found.begins[number], found.ends[number]
        return await fail(
            visit,
            404,
            "There is no message at this offset",
            f"Partition {number} of {topic} has offsets from {begin:,} to before {end:,}.",
            "Where messages were removed by compaction, and between transactions, offsets are left out.",
        )
    return await show(
        visit,
        "message.html",
        "messages",
        f"{topic}, partition {number}, offset {offset:,}",
        topic=topic,
        record=record,
        has_log_time=record.timestamp_type is TimestampType.LOG_APPEND_TIME,
        key=decoded(record.key, form),
        value=decoded(record.value, form),
        headers=[(name, decoded(value, form)) for name, value in record.headers[:200]],
        form=form,
        forms=FORMS,
        begin=found.begins[number],
        end=found.ends[number],
        to=lambda at, shown=form: address(
            "/message", topic=topic, partition=number, offset=at, **{"as": shown.value}
        ),
    )
