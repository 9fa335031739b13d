"""A broker that answers each API with damaged, misleading or missing answers, drawn from a seed.

It begins with the answer of an honest fake broker. So clients get far enough to meet all of their own code.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from holdfast_log.protocol.api import Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.fields import Array, Fixed, Struct, Variable, fields_of
from holdfast_log.protocol.frames import SIZE
from holdfast_log.protocol.headers import RequestHeader
from holdfast_log.testing.fakes.fake_broker import FakeBroker, FakeChannel
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.models.batches import batch
from tests.protocol.pieces import Damage, Sensible, pieces_of

_NUMBERS = (0, 1, -1, -2, 7, 2**15 - 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_TEXTS = ("", "flights", "other", "x" * 300, "\x1b[2J\nforged", "ü")
_CODES = (*map(int, ErrorCode), -1, 999)


class BusyLoop(BaseException):
    """A client has asked so often that it must be in a loop without a pause. No client catches it."""


class HostileBrokers:
    """Makes all brokers of a fake cluster hostile: `share` of the answers are not honest."""

    def __init__(self, cluster: FakeCluster, seed: int, requests_max: int) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._damage = Damage(self._rng)
        records = (batch(b"one"), batch(b"two", b"three"), b"", b"\x00" * 61)
        self._sensible = Sensible(self._rng, {"error_code": _CODES}, _TEXTS, records)
        self._requests_max = requests_max
        self._honest = {broker: broker._send for broker in cluster.brokers.values()}
        self.share = self._rng.choice((0.1, 0.3, 0.6, 0.9, 1.0))
        self.ways: Counter[str] = Counter()
        for broker in cluster.brokers.values():
            broker._send = self._sender(broker)  # type: ignore[method-assign]

    def _sender(self, broker: FakeBroker) -> Any:
        def send(channel: FakeChannel, header: RequestHeader, response: Response) -> None:
            # Each answer takes a moment, so that time passes for a client that only asks and asks.
            self._cluster.time_ms += 1
            if sum(self.ways.values()) > self._requests_max:
                raise BusyLoop(f"{self._requests_max} answers: {dict(self.ways)}")
            is_honest = self._rng.random() >= self.share
            way = "honest" if is_honest else self._rng.choice(_WAYS)
            self.ways[way] += 1
            if is_honest:
                self._honest[broker](channel, header, response)
            else:
                getattr(self, f"_{way}")(broker, channel, header, response)

        return send

    def stop(self) -> None:
        """Be honest from now on."""
        self.share = 0.0

    # What may happen instead of an honest answer ------------------------------------------------------

    def _damaged(
        self, broker: FakeBroker, channel: FakeChannel, header: RequestHeader, response: Response
    ) -> None:
        """Structure-aware damage of the honest answer."""
        body = self._damage.apply(pieces_of(response, header.api_version))
        self._frame(channel, header, response, body)

    def _altered(
        self, broker: FakeBroker, channel: FakeChannel, header: RequestHeader, response: Response
    ) -> None:
        """The honest answer with other values in some of its fields."""
        for _ in range(self._rng.choice((1, 1, 2, 5))):
            self._alter(response, header.api_version)
        self._frame(
            channel, header, response, b"".join(p.data for p in pieces_of(response, header.api_version))
        )

    def _invented(
        self, broker: FakeBroker, channel: FakeChannel, header: RequestHeader, response: Response
    ) -> None:
        """A well-formed answer that has nothing to do with the question."""
        invented = self._sensible.message(type(response), header.api_version)
        self._frame(
            channel, header, response, b"".join(p.data for p in pieces_of(invented, header.api_version))
        )

    def _missing(
        self, broker: FakeBroker, channel: FakeChannel, header: RequestHeader, response: Response
    ) -> None:
        """No answer at all."""

    def _cut(
        self, broker: FakeBroker, channel: FakeChannel, header: RequestHeader, response: Response
    ) -> None:
        channel.cut()

    def _twice(
        self, broker: FakeBroker, channel: FakeChannel, header: RequestHeader, response: Response
    ) -> None:
        self._honest[broker](channel, header, response)
        self._honest[broker](channel, header, response)

    def _mistaken(
        self, broker: FakeBroker, channel: FakeChannel, header: RequestHeader, response: Response
    ) -> None:
        """The answer to another request."""
        other = header._replace(correlation_id=header.correlation_id + self._rng.choice((-1, 1, 1000)))
        self._honest[broker](channel, other, response)

    def _announced(
        self, broker: FakeBroker, channel: FakeChannel, header: RequestHeader, response: Response
    ) -> None:
        """The length of an answer that does not come."""
        size = self._rng.choice((-1, 0, 3, 4, 1000, 1 << 20, 1 << 28, 2**31 - 1))
        channel.outbox += size.to_bytes(4, signed=True) + self._rng.randbytes(self._rng.choice((0, 3, 50)))

    def _garbage(
        self, broker: FakeBroker, channel: FakeChannel, header: RequestHeader, response: Response
    ) -> None:
        channel.outbox += self._rng.choice(
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x16", self._rng.randbytes(100))
        )

    def _frame(self, channel: FakeChannel, header: RequestHeader, response: Response, body: bytes) -> None:
        tags = b"\x00" if response.api.has_flexible_response_header(header.api_version) else b""
        frame = header.correlation_id.to_bytes(4, signed=True) + tags + body
        channel.outbox += SIZE.pack(len(frame)) + frame

    def _alter(self, message: Any, version: int) -> None:
        """Change a field of a message, or of one in its lists."""
        rng = self._rng
        fields = [field for field in fields_of(type(message)) if version in field.versions]
        if not fields:
            return
        field = rng.choice(fields)
        value = getattr(message, field.name)
        match field.type:
            case Array(Struct()) if value and rng.random() < 0.7:
                self._alter(rng.choice(value), version)
            case Array():
                changed = rng.choice(([], list(value or ()) * 2, list(value or ())[1:]))
                setattr(message, field.name, changed)
            case Struct() if value is not None:
                self._alter(value, version)
            case Fixed(name="bool"):
                setattr(message, field.name, not value)
            case Fixed(size=size, code=code) if code in "bhiqBHI":
                number = rng.choice(_CODES if field.name == "error_code" else _NUMBERS)
                signed = code.islower()
                bits = 8 * size - signed
                low = -(1 << bits) if signed else 0
                setattr(message, field.name, min(max(number, low), (1 << bits) - 1))
            case Variable.STRING:
                setattr(message, field.name, rng.choice(_TEXTS))
            case Variable.RECORDS:
                setattr(message, field.name, self._damage.batch(bytes(batch(b"one", b"two"))))
            case Variable():
                setattr(message, field.name, rng.randbytes(rng.choice((0, 3, 40))))


_WAYS = (
    "damaged", "damaged", "damaged", "altered", "altered", "altered", "altered", "invented", "invented",
    "missing", "cut", "twice", "mistaken", "announced", "garbage",
)  # fmt: skip
