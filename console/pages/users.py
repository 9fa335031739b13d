"""Users: SCRAM credentials by mechanism, quotas; setting a password and removing one behind a confirmation.

A password goes from the form to the brokers, and only as what is derived from it. No page shows one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.responses import RedirectResponse, Response

from holdfast_log.clients.admin import NewScramCredential, OldScramCredential
from holdfast_log.clients.errors import UnsupportedRequestError
from holdfast_log.console.pages.page import (
    BadParameter,
    Visit,
    address,
    form_of,
    read_only,
    show,
    stretch,
    whole,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.sasl.mechanisms import SCRAM_SHA_512
from holdfast_log.protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS

T = TypeVar("T")

_USER_MAX = 256
_PASSWORD_MAX = 1024
MECHANISMS = tuple(reversed(list(SCRAM_MECHANISMS)))
"""The stronger one first."""


def _part(ask: Callable[[], T]) -> tuple[T | None, str]:
    """An answer, or why there is none: who may not see users may see quotas, and the other way round."""
    try:
        return ask(), ""
    except (UnsupportedRequestError, BrokerError) as error:
        return None, str(error)


async def users_page(visit: Visit) -> Response:
    snapshot = await visit.parts.watch.current()
    credentials, problem = await visit.ask_about(lambda admin: _part(admin.describe_scram_credentials))
    quotas, quota_problem = await visit.ask_about(lambda admin: _part(admin.describe_client_quotas))
    find = visit.text("find").strip()
    users = sorted(user for user in credentials or () if find.lower() in user.lower())
    rows = sorted(
        (str(entity), name, value)
        for entity, found in (quotas or {}).items()
        for name, value in found.items()
    )
    return await show(
        visit,
        "users.html",
        "users",
        "Users",
        snapshot=snapshot,
        credentials=credentials or {},
        problem=problem,
        stretch=stretch(users, visit.whole("page", 1, 1)),
        quotas=[row for row in rows if find.lower() in row[0].lower()][:500],
        quota_problem=quota_problem,
        find=find,
        done=_done(visit, credentials or {}),
        turn=lambda page: address("/users", find=find or None, page=page),
    )


def _done(visit: Visit, credentials: dict[str, dict[str, int]]) -> str:
    """What the visitor has just changed and the brokers show already."""
    done = visit.text("done")
    if done not in ("set", "removed"):
        return ""
    user, mechanism = visit.needed("user"), visit.needed("mechanism")
    if (mechanism in credentials.get(user, {})) is (done == "set"):
        return f"The {mechanism} password of {user} was {done}."
    return "The brokers have taken the change, and do not show it yet. Load the page again."


def _mechanism(given: str) -> str:
    if given not in SCRAM_MECHANISMS:
        raise BadParameter(f"There are the mechanisms {' and '.join(SCRAM_MECHANISMS)}.")
    return given


# A password -----------------------------------------------------------------------------------------------


async def password_page(visit: Visit) -> Response:
    """The form for a user's password."""
    if not visit.parts.options.allow_changes:
        return await read_only(visit, "scripts/configs.sh --entity-type users --alter")
    mechanism = _mechanism(visit.text("mechanism") or SCRAM_SHA_512)
    return await _form(visit, visit.text("user").strip(), mechanism, ITERATIONS_MIN)


async def _form(visit: Visit, user: str, mechanism: str, iterations: int, problem: str = "") -> Response:
    return await show(
        visit,
        "user_password.html",
        "users",
        "Set a password",
        400 if problem else 200,
        name=user,
        mechanism=mechanism,
        mechanisms=MECHANISMS,
        iterations=iterations,
        bounds=(ITERATIONS_MIN, ITERATIONS_MAX),
        problem=problem,
    )


async def set_password(visit: Visit) -> Response:
    """Set a user's password for a mechanism, in place of the one before."""
    if not visit.parts.options.allow_changes:
        return await read_only(visit, "scripts/configs.sh --entity-type users --alter")
    fields = await form_of(visit)
    user, password = fields.get("user", "").strip(), fields.get("password", "")
    mechanism = _mechanism(fields.get("mechanism", ""))
    iterations = whole(
        "iterations", fields.get("iterations", ""), ITERATIONS_MIN, ITERATIONS_MIN, ITERATIONS_MAX
    )
    problem = _problem(user, password, fields.get("again", ""), is_sure=fields.get("sure") == "yes")
    if problem:
        return await _form(visit, user[:_USER_MAX], mechanism, iterations, problem)
    change = NewScramCredential(user, password, mechanism, iterations)
    try:
        await visit.ask_about(lambda admin: admin.alter_scram_credentials([change]))
    except BrokerError as error:
        if error.code is not ErrorCode.UNACCEPTABLE_CREDENTIAL:
            raise
        return await _form(visit, user, mechanism, iterations, error.message)
    return RedirectResponse(address("/users", done="set", user=user, mechanism=mechanism), 303)


def _problem(user: str, password: str, again: str, *, is_sure: bool) -> str:
    """Why a form is not complete; empty if it is."""
    if not user or len(user) > _USER_MAX:
        return f"Give the name of a user, of at most {_USER_MAX} characters."
    if not password or len(password) > _PASSWORD_MAX:
        return f"Give a password of at most {_PASSWORD_MAX} characters, twice."
    if password != again:
        return "The two passwords differ."
    return "" if is_sure else "Tick that you are sure."


# Removing -------------------------------------------------------------------------------------------------


async def remove_page(visit: Visit) -> Response:
    """The question whether a user's password shall really be removed."""
    if not visit.parts.options.allow_changes:
        return await read_only(visit, "scripts/configs.sh --entity-type users --alter")
    return await _question(visit)


async def _question(visit: Visit, problem: str = "") -> Response:
    user, mechanism = visit.needed("user"), _mechanism(visit.text("mechanism"))
    known = await visit.ask_about(lambda admin: admin.describe_scram_credentials())
    return await show(
        visit,
        "user_remove.html",
        "users",
        "Remove this password?",
        400 if problem else 200,
        name=user,
        mechanism=mechanism,
        is_there=mechanism in known.get(user, {}),
        others=[each for each in known.get(user, {}) if each != mechanism],
        problem=problem,
        target=address("/users/remove", user=user, mechanism=mechanism),
    )


async def remove(visit: Visit) -> Response:
    """Remove the password that the confirmation named."""
    if not visit.parts.options.allow_changes:
        return await read_only(visit, "scripts/configs.sh --entity-type users --alter")
    fields = await form_of(visit)
    user, mechanism = visit.needed("user"), _mechanism(visit.text("mechanism"))
    if fields.get("sure") != "yes":
        return await _question(visit, "Tick that you are sure.")
    change = OldScramCredential(user, mechanism)
    try:
        await visit.ask_about(lambda admin: admin.alter_scram_credentials([change]))
    except BrokerError as error:
        if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
            raise
        return await _question(visit, "Meanwhile somebody else has removed it. Nothing was changed.")
    return RedirectResponse(address("/users", done="removed", user=user, mechanism=mechanism), 303)
