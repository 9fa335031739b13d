"""The application: routes, and what every request passes before them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from holdfast_log.console.events import EventStreams
from holdfast_log.console.guarding.gate import Gate
from holdfast_log.console.pages import access, users
from holdfast_log.console.pages.cluster import cluster_page
from holdfast_log.console.pages.configs import configs_page
from holdfast_log.console.pages.groups import group_page, groups_page
from holdfast_log.console.pages.login import log_in, log_out, login_page
from holdfast_log.console.pages.messages import message_page, messages_page
from holdfast_log.console.pages.owners import owner_page, owners_page, release, release_page
from holdfast_log.console.pages.page import Visit, fail, page
from holdfast_log.console.pages.topics import topic_page, topics_page
from holdfast_log.console.pages.transactions import transaction_page, transactions_page
from holdfast_log.console.parts import STATIC, ConsoleParts


def build_app(parts: ConsoleParts) -> Starlette:
    """The application over the parts of a console."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        parts.clients.close()

    streams = EventStreams(parts)
    app = Starlette(
        routes=[
            Route("/", page(cluster_page)),
            Route("/topics", page(topics_page)),
            Route("/topic", page(topic_page)),
            Route("/messages", page(messages_page)),
            Route("/message", page(message_page)),
            Route("/groups", page(groups_page)),
            Route("/group", page(group_page)),
            Route("/transactions", page(transactions_page)),
            Route("/transaction", page(transaction_page)),
            Route("/owners", page(owners_page)),
            Route("/owner", page(owner_page)),
            Route("/owner/release", page(release_page), methods=["GET"]),
            Route("/owner/release", page(release), methods=["POST"]),
            Route("/configs", page(configs_page)),
            Route("/access", page(access.access_page)),
            Route("/access/add", page(access.add_page), methods=["GET"]),
            Route("/access/add", page(access.add), methods=["POST"]),
            Route("/access/remove", page(access.remove_page), methods=["GET"]),
            Route("/access/remove", page(access.remove), methods=["POST"]),
            Route("/users", page(users.users_page)),
            Route("/users/password", page(users.password_page), methods=["GET"]),
            Route("/users/password", page(users.set_password), methods=["POST"]),
            Route("/users/remove", page(users.remove_page), methods=["GET"]),
            Route("/users/remove", page(users.remove), methods=["POST"]),
            Route("/login", page(login_page, is_open=True), methods=["GET"]),
            Route("/login", page(log_in, is_open=True), methods=["POST"]),
            Route("/logout", page(log_out), methods=["POST"]),
            Route("/events", streams.answer),
            Route("/favicon.ico", _no_icon),
            Mount("/static", _Assets(directory=STATIC)),
            Route("/{rest:path}", page(_nothing_here, is_open=True)),
        ],
        middleware=[Middleware(Gate, hosts=parts.options.allowed_hosts)],
        lifespan=lifespan,
    )
    app.state.parts = parts
    app.state.streams = streams
    return app


async def _nothing_here(asked: Visit) -> Response:
    return await fail(asked, 404, "There is no such page", "The console has no page at this address.")


async def _no_icon(request: Request) -> Response:
    return PlainTextResponse("", 204)


class _Assets(StaticFiles):
    """The style sheet and the script. Their addresses change with their content: browsers may keep them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        found = await super().get_response(path, scope)
        found.headers["Cache-Control"] = "public, max-age=3600"
        return found
