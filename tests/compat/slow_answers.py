"""A relay between clients and a broker that delays the answers to requests of chosen kinds.

With it a client's call returns on its own timeout while the answer is on its way, as on a loaded machine.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Collection
from typing import Any

from holdfast_log.broker.tools.broker_process import receive
from holdfast_log.coordinator.tools.zookeeper_process import HOST
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.frames import SIZE
from holdfast_log.protocol.headers import decode_correlation_id, decode_request_header


class SlowAnswers:
    """Relays to the broker at `port` and passes on each answer to a request of `kinds` after `delay_s`.

    Later answers of the same connection wait behind the delayed one. Each connection has two threads.
    """

    def __init__(self, port: int, kinds: Collection[type[Request[Any]]], delay_s: float) -> None:
        self._target = (HOST, port)
        self._keys = frozenset(kind.api.key for kind in kinds)
        self._delay_s = delay_s
        self._door = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._door.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections. Each open connection ends when one of its two sides closes it."""
        _end(self._door)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # `close` closed the listening socket.
            while True:
                client, _ = self._door.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            delayed: set[int] = set()
            answers = threading.Thread(
                target=self._relay_answers, args=(server, client, delayed), daemon=True
            )
            answers.start()
            self._relay_requests(client, server, delayed)
            answers.join()

    def _relay_requests(self, client: socket.socket, server: socket.socket, delayed: set[int]) -> None:
        """Relay requests until either end closes, and note the correlation ids of those whose answers to
        delay."""
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _receive_frame(client)
                header, _ = decode_request_header(frame)
                if header.api_key in self._keys:
                    delayed.add(header.correlation_id)
                server.sendall(SIZE.pack(len(frame)) + frame)
        _shut(server)

    def _relay_answers(self, server: socket.socket, client: socket.socket, delayed: set[int]) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _receive_frame(server)
                correlation_id = decode_correlation_id(frame)
                if correlation_id in delayed:
                    delayed.discard(correlation_id)
                    time.sleep(self._delay_s)
                client.sendall(SIZE.pack(len(frame)) + frame)
        _shut(client)


def _receive_frame(connection: socket.socket) -> bytes:
    (size,) = SIZE.unpack(receive(connection, SIZE.size))
    return receive(connection, size)


def _shut(end: socket.socket) -> None:
    """End both directions, which wakes the thread that waits in `end`."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _end(end: socket.socket) -> None:
    _shut(end)
    end.close()
