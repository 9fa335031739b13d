"""Tells systemd, or whatever else set $NOTIFY_SOCKET, that the broker serves or stops (sd_notify)."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

VARIABLE = "NOTIFY_SOCKET"
READY = "READY=1"
STOPPING = "STOPPING=1"

_log = logging.getLogger(__name__)


def notify(environment: Mapping[str, str], state: str, status: str) -> None:
    """Send `state` and a line of `status` to the service manager. Does nothing without one.

    Raises OSError if the socket is there and does not take the message.
    """
    address = environment.get(VARIABLE, "")
    if not address:
        return
    if address.startswith("@"):  # Linux's abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.connect(address)
        channel.send(f"{state}\nSTATUS={status}\n".encode())


def tell(state: str, status: str) -> None:
    """Tell this process's service manager, if there is one. A broker also serves if it cannot be told."""
    try:
        notify(os.environ, state, status)
    except OSError as error:
        _log.warning("The service manager was not told %s: %s", state, error)
