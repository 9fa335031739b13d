"""Serves the console by HTTP until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import click
import uvicorn

from holdfast_log.clients.admin import Admin
from holdfast_log.console.app import build_app
from holdfast_log.console.guarding.login import missing_for_login
from holdfast_log.console.options import ConsoleOptions
from holdfast_log.console.parts import build_parts
from holdfast_log.console.slow_clients import HEAD_BYTES_MAX, ImpatientProtocol

_CONNECTIONS_MAX = 500
_BACKLOG = 128


def serve(
    given: Mapping[str, Any], options: ConsoleOptions, certificate: str | None, key: str | None
) -> None:
    """Show the cluster of the properties `given`. Raises ConfigError, click.ClickException.

    `certificate` and `key` are the paths of PEM files.
    """
    if options.needs_login and (missing := missing_for_login(given)) is not None:
        raise click.ClickException(missing)
    parts = build_parts(given, options)
    Admin(parts.clients.properties).close()  # Wrong properties are reported here, not on every page.
    app = build_app(parts)
    config = uvicorn.Config(
        app, http=ImpatientProtocol, h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        log_level="warning", access_log=False, server_header=False, proxy_headers=False,
        ws="none", lifespan="on", limit_concurrency=_CONNECTIONS_MAX, timeout_keep_alive=30,
        timeout_graceful_shutdown=3, ssl_certfile=certificate, ssl_keyfile=key,
    )  # fmt: skip
    with _bound(options.host, options.port) as listener:
        scheme = "https" if options.has_tls else "http"
        shown = f"[{options.host}]" if ":" in options.host else options.host
        click.echo(f"The console is at {scheme}://{shown}:{listener.getsockname()[1]}/. Ctrl-C stops it.")
        _Server(config, app.state.streams.end).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Ends the streams of events when it is told to stop: they would hold it up."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._end_streams()
        super().handle_exit(sig, frame)


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises click.ClickException that says what to do."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise click.ClickException(f"--listen: {host} has no address") from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise click.ClickException(
            f"cannot listen on {host}:{port}: {error.strerror}. Give another port with --listen {host}:PORT."
        ) from None
    return listener
