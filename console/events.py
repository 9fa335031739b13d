"""Server-sent events: each open page is told when there is a newer snapshot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from holdfast_log.console.asking.snapshot import ClusterSnapshot
from holdfast_log.console.pages.page import summary
from holdfast_log.console.parts import ConsoleParts

STREAMS_MAX = 100
ALIVE_S = 15.0
"""How often a line is sent while nothing is new, so that nobody in between ends the connection."""
LIFE_S = 600.0
"""How long a stream lasts. Browsers then begin a new one; those that are gone leave nothing behind."""


class EventStreams:
    """Streams of events, a bounded number at a time."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._parts = parts
        self._count = 0
        self._is_ended = asyncio.Event()

    def end(self) -> None:
        """End all streams, so that the console can stop. Call it in the thread of the event loop."""
        self._is_ended.set()

    async def answer(self, request: Request) -> Response:
        visitor = self._parts.visitors.of(request)
        if self._parts.options.needs_login and not visitor.user:
            return PlainTextResponse("Log in first.\n", 403)
        if self._count >= STREAMS_MAX:
            return PlainTextResponse("Too many pages are open.\n", 503, {"Retry-After": "30"})
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        self._count += 1
        try:
            until_s = self._parts.clocks.steady() + LIFE_S
            version = -1
            yield "retry: 3000\n\n"
            while self._parts.clocks.steady() < until_s and not self._is_ended.is_set():
                snapshot = await self._newer(version)
                if snapshot is None:
                    yield ": still here\n\n"
                    continue
                version = snapshot.version
                told = {"version": version, "atMs": int(snapshot.at_s * 1000), "summary": summary(snapshot)}
                yield f"event: look\nid: {version}\ndata: {json.dumps(told)}\n\n"
        finally:
            self._count -= 1

    async def _newer(self, version: int) -> ClusterSnapshot | None:
        """The next snapshot; None if there is none for a while, or the streams end."""
        look = asyncio.ensure_future(self._parts.watch.after(version))
        ended = asyncio.ensure_future(self._is_ended.wait())
        try:
            await asyncio.wait((look, ended), timeout=ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            return look.result() if look.done() else None
        finally:
            look.cancel()
            ended.cancel()
