"""What all pages share: who asks, the parameters of addresses, the frame around a page, failures in words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.errors import ClientError, UnsupportedRequestError
from holdfast_log.clients.tools.cluster_health import ClusterFindings, Trouble, troubles_of
from holdfast_log.console.asking.snapshot import ClusterSnapshot
from holdfast_log.console.asking.work import Busy
from holdfast_log.console.guarding.visitors import Visitor
from holdfast_log.console.parts import ConsoleParts
from holdfast_log.protocol.errors import (
    AuthorizationError,
    BrokerError,
    GroupNotFoundError,
    UnknownTopicOrPartitionError,
)

T = TypeVar("T")

ROWS = 50
"""How many rows of a list are on one page."""
_TEXT_MAX = 32_768
_FORM_MAX = 64 * 1024
_FIELDS_MAX = 20

NAVIGATION = (
    ("cluster", "/", "Cluster", "c"),
    ("topics", "/topics", "Topics", "t"),
    ("messages", "/messages", "Messages", "m"),
    ("groups", "/groups", "Groups", "g"),
    ("transactions", "/transactions", "Transactions", "x"),
    ("owners", "/owners", "Owners", "o"),
    ("configs", "/configs", "Settings", "s"),
    ("access", "/access", "Access", "a"),
    ("users", "/users", "Users", "u"),
)
"""Of each entry: its name, its address, its label, and the key that opens it after g."""

STILL = ("messages", "configs", "access", "users")
"""The pages that are not renewed: they show what was asked for."""


class BadParameter(Exception):
    """A parameter of the address or a field of a form is wrong; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request: who sends it, and the parts of the console."""

    request: Request
    visitor: Visitor
    parts: ConsoleParts

    def text(self, name: str, default: str = "") -> str:
        """A parameter. Raises BadParameter if it is too long."""
        return _bounded(name, self.request.query_params.get(name, default))

    def needed(self, name: str) -> str:
        """A parameter that the address must have."""
        if name not in self.request.query_params:
            raise BadParameter(f"The address lacks the parameter {name}.")
        return self.text(name)

    def whole(self, name: str, default: int, low: int = 0, high: int = 2**63 - 1) -> int:
        """A parameter that is a whole number within bounds."""
        return whole(name, self.text(name), default, low, high)

    async def ask_about(self, question: Callable[[Admin], T]) -> T:
        """Put a question to the cluster with the rights of who asks, in a worker thread."""
        return await self.parts.ask(self.visitor.properties, question)


PageHandler: TypeAlias = Callable[[Visit], Awaitable[Response]]


def whole(name: str, given: str, default: int, low: int = 0, high: int = 2**63 - 1) -> int:
    """A whole number within bounds; the default if nothing is given. Raises BadParameter."""
    given = given.strip()
    if not given:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 19 or not low <= int(given) <= high:
        raise BadParameter(f"The {name} is a whole number from {low:,} to {high:,}.")
    return int(given)


def _bounded(name: str, given: str) -> str:
    if len(given) > _TEXT_MAX:
        raise BadParameter(f"The {name} is too long.")
    return given


@dataclass(frozen=True, slots=True)
class Stretch(Generic[T]):
    """The rows of one page of a list, and where they are in it. Pages count from 1."""

    rows: Sequence[T]
    page: int
    pages: int
    total: int


def stretch(rows: Sequence[T], page: int, size: int = ROWS) -> Stretch[T]:
    """The rows of a page; of the last one, if there are fewer."""
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, page), pages)
    return Stretch(rows[(page - 1) * size : page * size], page, pages, len(rows))


def address(path: str, **parameters: object) -> str:
    """An address on this console; parameters that are None are left out."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def troubles(snapshot: ClusterSnapshot) -> list[Trouble]:
    """What is wrong with the cluster, and what to do."""
    cluster = snapshot.cluster
    if cluster.value is None:
        return [Trouble("No broker answers.", cluster.problem or "")]
    found = []
    if cluster.problem is not None:
        found.append(Trouble("No broker answers any more: this is what was last seen.", cluster.problem))
    return found + list(
        troubles_of(
            ClusterFindings(
                cluster.value, snapshot.topics.value or (), {}, snapshot.log_dirs.value or (), snapshot.silent
            )
        )
    )


def summary(snapshot: ClusterSnapshot) -> str:
    """One sentence about the cluster, which is read out when it changes."""
    found = troubles(snapshot)
    return found[0].what if found else "The cluster is healthy."


async def show(
    visit: Visit, template: str, at: str, title: str, status: int = 200, **values: Any
) -> Response:
    """A page. `at` is its entry in the navigation."""
    parts = visit.parts
    snapshot: ClusterSnapshot | None = values.pop("snapshot", None)
    frame: Mapping[str, Any] = {
        "navigation": NAVIGATION,
        "at": at,
        "title": title,
        "snapshot": snapshot,
        "is_live": at not in STILL,
        "summary": None if snapshot is None else summary(snapshot),
        "now_s": parts.clocks.wall(),
        "user": visit.visitor.user,
        "allows_changes": parts.options.allow_changes,
        "needs_login": parts.options.needs_login,
        "token": parts.visitors.token(visit.visitor),
        "address": address,
        "here": visit.request.url.path,
        "query": dict(visit.request.query_params),
    }
    text = parts.templates.get_template(template).render({**frame, **values})
    return HTMLResponse(text, status)


async def fail(visit: Visit, status: int, title: str, text: str, advice: str = "") -> Response:
    """A page that says what went wrong."""
    return await show(visit, "failure.html", "", title, status, text=text, advice=advice)


async def read_only(visit: Visit, command: str) -> Response:
    """The answer to a change that this console may not make. `command` makes it without a console."""
    return await fail(
        visit,
        403,
        "This console only shows",
        "It was started without leave to change anything.",
        f"Start it with --allow-changes, or use {command}.",
    )


def page(handler: PageHandler, *, is_open: bool = False) -> Callable[[Request], Awaitable[Response]]:
    """A route. Where a login is needed, those without are sent to it first, unless the route `is_open`."""

    async def answer(request: Request) -> Response:
        parts: ConsoleParts = request.app.state.parts
        visitor = parts.visitors.of(request)
        visit = Visit(request, visitor, parts)
        if parts.options.needs_login and not visitor.user and not is_open:
            target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            response: Response = RedirectResponse(f"/login?next={quote(target, safe='')}", 303)
        else:
            response = await _answer(handler, visit)
        parts.visitors.remember(visitor, response)
        return response

    return answer


async def _answer(handler: PageHandler, visit: Visit) -> Response:
    try:
        return await handler(visit)
    except BadParameter as error:
        return await fail(visit, 400, "This address is not right", str(error))
    except Busy:
        return await fail(
            visit,
            503,
            "The console is busy",
            "Too many questions wait for the cluster already.",
            "Try again.",
        )
    except (UnknownTopicOrPartitionError, GroupNotFoundError) as error:
        return await fail(visit, 404, "There is no such thing in this cluster", str(error))
    except AuthorizationError as error:
        return await fail(visit, 403, "You may not see or do this", str(error))
    except UnsupportedRequestError as error:
        return await fail(visit, 501, "These brokers cannot do this", str(error))
    except (ClientError, BrokerError) as error:
        return await fail(
            visit,
            502,
            "The cluster gave no answer",
            str(error),
            "Look at the page Cluster for what is wrong.",
        )


async def form_of(visit: Visit) -> dict[str, str]:
    """The fields of a form, whose token must be this visitor's. Raises BadParameter."""
    body = b""
    async for chunk in visit.request.stream():
        body += chunk
        if len(body) > _FORM_MAX:
            raise BadParameter("The form is too large.")
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX))
    except ValueError:
        raise BadParameter("The form cannot be read.") from None
    if not visit.parts.visitors.has_token(visit.visitor, fields.get("token", "")):
        raise BadParameter("This form is out of date: open the page again, and send it once more.")
    return fields
