"""The list of topics, and the page of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from holdfast_log.console.asking.snapshot import TopicRow
from holdfast_log.console.pages.page import Visit, address, show, stretch

ORDERS: dict[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.name,
    "rate": lambda row: (-(row.rate or 0.0), row.name),
    "size": lambda row: (-(row.size_bytes or 0), row.name),
    "partitions": lambda row: (-row.partitions, row.name),
    "trouble": lambda row: (-row.offline, -row.under_replicated, row.name),
}
ORDER_NAMES = {
    "name": "Name",
    "rate": "Most written first",
    "size": "Largest first",
    "partitions": "Most partitions first",
    "trouble": "In trouble first",
}


async def topics_page(visit: Visit) -> Response:
    snapshot = await visit.parts.watch.current()
    wanted = visit.text("find").strip().lower()
    order = visit.text("order", "name")
    shows_internal = visit.text("internal") == "yes"
    rows = [
        row
        for row in snapshot.topic_rows
        if wanted in row.name.lower() and (shows_internal or not row.is_internal)
    ]
    rows.sort(key=ORDERS.get(order, ORDERS["name"]))
    kept = {"find": wanted or None, "order": order if order in ORDERS else None}
    return await show(
        visit,
        "topics.html",
        "topics",
        "Topics",
        snapshot=snapshot,
        part=snapshot.topics,
        stretch=stretch(rows, visit.whole("page", 1, 1)),
        find=wanted,
        order=order,
        orders=ORDER_NAMES,
        shows_internal=shows_internal,
        hidden=sum(row.is_internal for row in snapshot.topic_rows),
        turn=lambda page: address("/topics", **kept, internal="yes" if shows_internal else None, page=page),
    )


async def topic_page(visit: Visit) -> Response:
    name = visit.needed("name")
    snapshot = await visit.parts.watch.current()
    detail = await visit.parts.topics.find(name)
    found = stretch(detail.description.partitions, visit.whole("page", 1, 1))
    row = next((row for row in snapshot.topic_rows if row.name == name), None)
    messages = sum(end - detail.begins.get(number, end) for number, end in detail.ends.items())
    return await show(
        visit,
        "topic.html",
        "topics",
        name,
        snapshot=snapshot,
        name=name,
        detail=detail,
        row=row,
        messages=messages,
        stretch=found,
        owners=snapshot.owners_by_partition,
        has_owners=snapshot.owners.value is not None,
        turn=lambda page: address("/topic", name=name, page=page),
    )
