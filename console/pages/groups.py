"""Consumer groups: the list with members and lag, and the page of one."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from holdfast_log.clients.errors import ClientError
from holdfast_log.console.asking.group_questions import GroupDetail
from holdfast_log.console.asking.work import Busy
from holdfast_log.console.pages.page import Visit, address, fail, show, stretch
from holdfast_log.protocol.errors import BrokerError

ROWS = 20
"""How many groups are on one page: each costs a few questions."""


async def groups_page(visit: Visit) -> Response:
    snapshot = await visit.parts.watch.current()
    wanted = visit.text("find").strip().lower()
    rows = [row for row in snapshot.groups.value or () if wanted in row.group_id.lower()]
    found = stretch(rows, visit.whole("page", 1, 1), ROWS)
    details = await asyncio.gather(*(_detail(visit, row.group_id) for row in found.rows))
    return await show(
        visit,
        "groups.html",
        "groups",
        "Groups",
        snapshot=snapshot,
        part=snapshot.groups,
        stretch=found,
        details=dict(zip((row.group_id for row in found.rows), details, strict=True)),
        find=wanted,
        turn=lambda page: address("/groups", find=wanted or None, page=page),
    )


async def _detail(visit: Visit, name: str) -> GroupDetail | str:
    """What is known of a group, or why nothing is: one group in trouble does not hide the others."""
    try:
        return await visit.parts.groups.find(name)
    except (BrokerError, ClientError, Busy) as error:
        return str(error) or "The console is busy."


async def group_page(visit: Visit) -> Response:
    name = visit.needed("name")
    snapshot = await visit.parts.watch.current()
    detail = await visit.parts.groups.find(name)
    if not detail.exists:
        return await fail(visit, 404, "There is no such group", f"The cluster knows no group “{name}”.")
    members = stretch(detail.description.members, visit.whole("members", 1, 1))
    found = stretch(detail.partitions, visit.whole("page", 1, 1))
    return await show(
        visit,
        "group.html",
        "groups",
        name,
        snapshot=snapshot,
        name=name,
        detail=detail,
        protocol=next((row.type for row in snapshot.groups.value or () if row.group_id == name), ""),
        consumers=detail.by_member_id,
        members=members,
        stretch=found,
        turn=lambda page: address("/group", name=name, members=members.page, page=page),
        turn_members=lambda page: address("/group", name=name, members=page, page=found.page),
    )
