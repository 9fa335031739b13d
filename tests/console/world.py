"""A console over a fake cluster, in one thread: Starlette's client is the browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from starlette.testclient import TestClient

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.consumer import Consumer
from holdfast_log.console.app import build_app
from holdfast_log.console.asking.gathering import Clocks
from holdfast_log.console.asking.work import Clients
from holdfast_log.console.guarding.login import LoginCheck
from holdfast_log.console.options import ConsoleOptions
from holdfast_log.console.parts import ConsoleParts, build_parts
from holdfast_log.testing import FakeCluster

T = TypeVar("T")


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at_s = 1_000.0

    def __call__(self) -> float:
        return self.at_s


class ConsoleWorld:
    """A fake cluster, a console that looks at it, and a browser."""

    def __init__(
        self,
        options: ConsoleOptions | None = None,
        *,
        brokers: int = 2,
        admin: Callable[[Mapping[str, Any]], Any] | None = None,
        check_login: LoginCheck | None = None,
    ) -> None:
        self.cluster = FakeCluster(brokers=brokers)
        self.hand = Hand()
        self.admins = 0
        self.given: list[Mapping[str, Any]] = []
        """The properties of every client that was made."""

        def make_admin(properties: Mapping[str, Any]) -> Admin:
            self.admins += 1
            self.given.append(properties)
            made = (admin or self.cluster.admin)(properties)
            assert made is not None
            return made

        def make_consumer(properties: Mapping[str, Any]) -> Consumer:
            self.given.append(properties)
            return self.cluster.consumer(properties)

        async def run(function: Callable[[], T]) -> T:
            return function()  # A fake cluster is used in one thread.

        self.parts: ConsoleParts = build_parts(
            {},
            options or ConsoleOptions(),
            clients=Clients(
                {"bootstrap.servers": self.cluster.bootstrap},
                make_admin=make_admin,
                make_consumer=make_consumer,
            ),
            run=run,
            clocks=Clocks(wall=lambda: 1_700_000_000.0 + self.hand.at_s, steady=self.hand),
            check_login=check_login,
        )
        self.browser = TestClient(build_app(self.parts), base_url="http://127.0.0.1:8080")

    def get(self, path: str, status: int = 200, **parameters: Any) -> str:
        """A page's HTML."""
        answer = self.browser.get(path, params=parameters or None)
        assert answer.status_code == status, answer.text
        return answer.text

    def send(self, path: str, fields: Mapping[str, str], status: int = 303, **headers: str) -> str:
        """Send a form, as a browser does. Returns the page, or where the answer sends the browser."""
        answer = self.browser.post(
            path,
            data=dict(fields),
            headers={"Origin": "http://127.0.0.1:8080", **headers},
            follow_redirects=False,
        )
        assert answer.status_code == status, answer.text
        return answer.headers.get("location", answer.text)

    def later(self, seconds: float = 60.0) -> None:
        """Let time pass, so that the console looks anew."""
        self.hand.at_s += seconds


def token_in(page: str) -> str:
    """The token of the page's form."""
    (found, *_) = re.findall(r'name="token" value="([0-9a-f]{64})"', page)
    return str(found)


def words(page: str) -> str:
    """What a page says, without tags."""
    import html

    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
