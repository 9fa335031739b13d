"""Logging in and out."""

from __future__ import annotations

import asyncio
from functools import partial
from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response

from holdfast_log.clients.errors import ClientError
from holdfast_log.console.asking.work import Busy
from holdfast_log.console.guarding.login import refused
from holdfast_log.console.pages.page import Visit, form_of, show
from holdfast_log.protocol.errors import BrokerError

WAIT_AFTER_FAILURE_S = 1.0


async def login_page(visit: Visit) -> Response:
    if not visit.parts.options.needs_login or visit.visitor.user:
        return RedirectResponse(own_path(visit.text("next", "/")), 303)
    return await _form(visit)


async def _form(visit: Visit, problem: str = "", status: int = 200) -> Response:
    return await show(
        visit, "login.html", "", "Log in", status, problem=problem, next=own_path(visit.text("next", "/"))
    )


async def log_in(visit: Visit) -> Response:
    visitors = visit.parts.visitors
    fields = await form_of(visit)
    where = visit.request.client.host if visit.request.client else ""
    wait_s = visitors.wait_s(where)
    if wait_s > 0:
        return await _form(visit, f"There were too many attempts. Wait {wait_s:.0f} s, then try again.", 429)
    user, password = fields.get("user", "").strip(), fields.get("password", "")
    problem = refused(user, password)
    if problem is None:
        try:
            properties = await visit.parts.run(partial(visit.parts.check_login, user, password))
        except Busy:
            return await _form(visit, "The console is busy. Try again.", 503)
        except (BrokerError, ClientError) as error:
            problem = f"The cluster does not let {user} in: {error}"
    if problem is not None:
        visitors.failed(where)
        await asyncio.sleep(WAIT_AFTER_FAILURE_S)  # Guessing takes time.
        return await _form(visit, problem, 403)
    visitors.succeeded(where)
    response = RedirectResponse(own_path(visit.text("next", "/")), 303)
    visitors.remember(visitors.log_in(user, properties), response)
    return response


async def log_out(visit: Visit) -> Response:
    await form_of(visit)
    response = RedirectResponse("/login", 303)
    visit.parts.visitors.remember(visit.parts.visitors.log_out(visit.visitor), response)
    return response


def own_path(target: str) -> str:
    """The target, if it is a page of this console; else the first page."""
    parts = urlsplit(target)
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.netloc
    return target if is_own and target.isprintable() and "\\" not in target else "/"
