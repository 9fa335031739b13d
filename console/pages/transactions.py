"""Transactions: the list of transactional ids, and the page of one."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from holdfast_log.clients.admin import TransactionDescription, TransactionListing
from holdfast_log.clients.errors import ClientError, UnsupportedRequestError
from holdfast_log.console.asking.snapshot import ViewPart
from holdfast_log.console.asking.transaction_questions import UNFINISHED, is_overdue, open_for_s
from holdfast_log.console.asking.work import Busy
from holdfast_log.console.pages.page import Visit, address, fail, show, stretch
from holdfast_log.protocol.errors import BrokerError, ErrorCode

ROWS = 20
"""How many transactional ids are on one page: each whose transaction is open costs a question."""


async def transactions_page(visit: Visit) -> Response:
    snapshot = await visit.parts.watch.current()
    wanted = visit.text("find").strip().lower()
    shows_ended = visit.text("ended", "yes") == "yes"
    part = await _all(visit)
    everything = part.value or ()
    rows = [
        row
        for row in everything
        if wanted in row.transactional_id.lower() and (shows_ended or row.state in UNFINISHED)
    ]
    found = stretch(rows, visit.whole("page", 1, 1), ROWS)
    unfinished = [row.transactional_id for row in found.rows if row.state in UNFINISHED]
    details = await asyncio.gather(*(_detail(visit, name) for name in unfinished))
    return await show(
        visit,
        "transactions.html",
        "transactions",
        "Transactions",
        snapshot=snapshot,
        part=part,
        stretch=found,
        details=dict(zip(unfinished, details, strict=True)),
        unfinished=sum(row.state in UNFINISHED for row in everything),
        total=len(everything),
        open_for_s=open_for_s,
        is_overdue=is_overdue,
        find=wanted,
        shows_ended=shows_ended,
        turn=lambda page: address(
            "/transactions", find=wanted or None, ended=None if shows_ended else "no", page=page
        ),
    )


async def _all(visit: Visit) -> ViewPart[tuple[TransactionListing, ...]]:
    """The list, or why there is none. Raises UnsupportedRequestError."""
    try:
        return ViewPart(await visit.parts.transactions.find(""), visit.parts.clocks.wall())
    except UnsupportedRequestError:
        raise
    except (BrokerError, ClientError) as error:
        return ViewPart(problem=str(error))


async def _detail(visit: Visit, name: str) -> TransactionDescription | str:
    """What is known of a transactional id, or why nothing is."""
    try:
        return await visit.parts.transaction.find(name)
    except (BrokerError, ClientError, Busy) as error:
        return str(error) or "The console is busy."


async def transaction_page(visit: Visit) -> Response:
    name = visit.needed("id")
    snapshot = await visit.parts.watch.current()
    try:
        detail = await visit.parts.transaction.find(name)
    except BrokerError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return await fail(
            visit,
            404,
            "There is no such transactional id",
            f"No coordinator knows the transactional id “{name}”.",
            "One that is not used for transactional.id.expiration.ms is forgotten.",
        )
    now_s = visit.parts.clocks.wall()
    return await show(
        visit,
        "transaction.html",
        "transactions",
        name,
        snapshot=snapshot,
        name=name,
        detail=detail,
        is_unfinished=detail.state in UNFINISHED,
        age_s=open_for_s(detail, now_s),
        is_late=is_overdue(detail, now_s),
        stretch=stretch(detail.partitions, visit.whole("page", 1, 1)),
        turn=lambda page: address("/transaction", id=name, page=page),
    )
