"""Owners: who holds what since when, who waits, the history, and taking a resource away by force."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.responses import RedirectResponse, Response

from holdfast_log.clients.admin import Admin, OwnershipDescription, PastOwnership
from holdfast_log.console.pages.page import (
    BadParameter,
    Visit,
    address,
    fail,
    form_of,
    read_only,
    show,
    stretch,
    whole,
)
from holdfast_log.console.wording import resource_name
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import LossReason
from holdfast_log.protocol.topic_partition import TopicPartition

_COMMENT_MAX = 500
HISTORY_MAX = 200
_ANOTHER_OWNER = (ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.STALE_GENERATION)
"""The answers where another generation is in force than the one to end."""


async def owners_page(visit: Visit) -> Response:
    snapshot = await visit.parts.watch.current()
    wanted = visit.text("find").strip().lower()
    shows_free = visit.text("free") == "yes"
    rows = [
        row
        for row in snapshot.owners.value or ()
        if _matches(row, wanted) and (shows_free or row.owner_id is not None or row.waiters or row.sharers)
    ]
    all_rows = snapshot.owners.value or ()
    return await show(
        visit,
        "owners.html",
        "owners",
        "Owners",
        snapshot=snapshot,
        part=snapshot.owners,
        stretch=stretch(rows, visit.whole("page", 1, 1)),
        held=sum(row.owner_id is not None for row in all_rows),
        waiting=sum(len(row.waiters) for row in all_rows),
        away=sum(row.state.name == "DETACHED" for row in all_rows),
        find=wanted,
        shows_free=shows_free,
        to=owner_address,
        turn=lambda page: address(
            "/owners", find=wanted or None, free="yes" if shows_free else None, page=page
        ),
    )


def _matches(row: OwnershipDescription, wanted: str) -> bool:
    texts = (resource_name(row.resource), row.group, row.owner_id or "", row.client_id or "")
    return any(wanted in text.lower() for text in texts)


def owner_address(row: OwnershipDescription, path: str = "/owner", **more: object) -> str:
    """The page of one resource of one group."""
    return address(path, group=row.group, **_named(row.resource), **more)


def _named(resource: TopicPartition | str) -> dict[str, Any]:
    if isinstance(resource, str):
        return {"name": resource}
    return {"topic": resource.topic, "partition": resource.partition}


def _resource(visit: Visit) -> TopicPartition | str:
    if "name" in visit.request.query_params:
        return visit.text("name")
    return TopicPartition(visit.needed("topic"), visit.whole("partition", 0, high=2**31 - 1))


def _described(group: str, resource: TopicPartition | str, admin: Admin) -> OwnershipDescription | None:
    rows = admin.describe_owners([group], [resource], include_history=True)
    return next((row for row in rows if row.resource == resource and row.group == group), None)


async def _sought(visit: Visit) -> OwnershipDescription | None:
    return await visit.ask_about(partial(_described, visit.needed("group"), _resource(visit)))


async def _unknown(visit: Visit) -> Response:
    return await fail(
        visit,
        404,
        "No broker knows an owner here",
        f"{resource_name(_resource(visit))} has no owner and no history.",
        "It may have been released long ago, or its topic deleted.",
    )


async def owner_page(visit: Visit) -> Response:
    snapshot = await visit.parts.watch.current()
    row = await _sought(visit)
    if row is None:
        return await _unknown(visit)
    history = sorted(row.history, key=lambda each: -each.generation)
    return await show(
        visit,
        "owner.html",
        "owners",
        f"Owner of {resource_name(row.resource)}",
        snapshot=snapshot,
        row=row,
        history=history[:HISTORY_MAX],
        left_out=max(0, len(history) - HISTORY_MAX),
        done=_done(visit, row),
        release_address=owner_address(row, "/owner/release"),
    )


def _done(visit: Visit, row: OwnershipDescription) -> PastOwnership | None:
    """The ownership that the visitor has just ended by force, as the broker's history has it."""
    generation = visit.whole("done", -1)
    ended = (each for each in row.history if each.reason is LossReason.FORCED)
    return next((each for each in ended if each.generation == generation), None)


async def release_page(visit: Visit) -> Response:
    """The question whether the resource shall really be taken away."""
    if not visit.parts.options.allow_changes:
        return await read_only(visit, "scripts/owners.sh --release")
    row = await _sought(visit)
    if row is None:
        return await _unknown(visit)
    return await _confirmation(visit, row)


async def _confirmation(visit: Visit, row: OwnershipDescription, problem: str = "") -> Response:
    return await show(
        visit,
        "release.html",
        "owners",
        f"Take {resource_name(row.resource)} away",
        400 if problem else 200,
        row=row,
        problem=problem,
        target=owner_address(row, "/owner/release"),
        back=owner_address(row),
    )


async def release(visit: Visit) -> Response:
    """Take the resource from the owner that the confirmation named, and from no later one."""
    if not visit.parts.options.allow_changes:
        return await read_only(visit, "scripts/owners.sh --release")
    fields = await form_of(visit)
    group, resource = visit.needed("group"), _resource(visit)
    generation = whole("generation", fields.get("generation", ""), -1)
    comment = fields.get("comment", "").strip()
    if generation < 0:
        raise BadParameter("The form lacks the generation to end.")
    row = await _sought(visit)
    if row is None:
        return await _unknown(visit)
    if not comment or len(comment) > _COMMENT_MAX or fields.get("sure") != "yes":
        return await _confirmation(
            visit, row, f"Give a reason of at most {_COMMENT_MAX} characters, and tick that you are sure."
        )
    if visit.visitor.user:
        comment = f"{comment} ({visit.visitor.user}, by the console)"

    def take(admin: Admin) -> tuple[int, str | None]:
        return admin.force_release(group, resource, generation=generation, comment=comment)

    try:
        in_force, _ = await visit.ask_about(take)
    except BrokerError as error:
        if error.code not in _ANOTHER_OWNER:
            raise
        return await _confirmation(
            visit, row, "Meanwhile somebody else has become the owner. Nothing was changed; look again."
        )
    await visit.parts.watch.fresh()
    return RedirectResponse(owner_address(row, done=in_force), 303)
