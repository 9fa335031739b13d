"""What every request passes first: the name it is for, where it comes from; and the headers of answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Nothing is loaded from elsewhere, nothing inline runs, no other site shows a page in a frame."""
_SAFE = ("GET", "HEAD")
_METHODS = (*_SAFE, "POST")


class Gate:
    """Refuses requests for other names (a foreign name that points here: DNS rebinding) and changes that
    another site asks for, and gives every answer the headers above."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found[name] = value
                found.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        if refusal is not None:
            status, text = refusal
            await PlainTextResponse(text, status)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        if host_name(headers.get("host", "")) not in self._hosts:
            return 421, (
                "The console does not answer to this name. Call it by the name or address that it was "
                "started with, or start it with --name NAME.\n"
            )
        if method not in _METHODS:
            return 405, "The console only knows GET and POST.\n"
        if method not in _SAFE and not comes_from_here(headers):
            return 403, "The console takes changes from its own pages only.\n"
        return None


def host_name(header: str) -> str:
    """The name in the header Host, in lower case and without a port."""
    name = header.strip().lower()
    head, colon, port = name.rpartition(":")
    return (
        head
        if colon and port.isascii() and port.isdigit() and (":" not in head or head.endswith("]"))
        else name
    )


def comes_from_here(headers: Mapping[str, str]) -> bool:
    """Whether a page of this console sends the form. Browsers say so; what says nothing is refused."""
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    if origin is None:
        return "sec-fetch-site" in headers
    return urlsplit(origin).netloc.lower() == headers.get("host", "").strip().lower()
