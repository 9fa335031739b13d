"""Damaged messages and batches for every decoder, compiled and in Python: the same verdict, and no other
error than that for malformed bytes.

    python -m tests.protocol.damaged_decoding --count 10000000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast_log.protocol import record_codec
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.batches import HEADER_SIZE, BatchHeader, read_header
from holdfast_log.protocol.compiled import DECODERS, WIRE, extension
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.headers import flexible_requests, request_fields
from holdfast_log.protocol.plain_produce import plain_header_in_python
from holdfast_log.protocol.schema import MalformedMessage, decode_from
from tests.models.batches import START_MS, batch, encoded
from tests.protocol.pieces import Damage, Sensible, pieces_of
from tests.protocol.strategies import every_version

_DAMAGES_PER_MESSAGE = 100
"""How often each message is damaged: to make a new one takes longer than to damage it."""
_LAST_DAMAGES = 20
"""How many times the last damage is chosen for the same earlier damage."""
_BATCHES = 0.25
"""Share of the runs that decode a batch instead of a message."""
_ELEMENTS_MAX = 50_000
"""As a broker's socket.request.max.elements: a repeated element is no reason to fill the memory."""
_SIZE_MAX = 1 << 20
_DAY_MS = 86_400_000

RECORDS = (
    batch(b"one", b"two" * 30),
    bytes(encoded([(START_MS, b"key", None), (START_MS + 5, None, b"v", [("h", b"x"), ("i", None)])])),
    batch(b"x", producer_id=5, producer_epoch=0, base_sequence=7),
)


class Runs:
    """Decodes damaged bytes, and counts the verdicts."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._sensible = Sensible(self._rng, {}, ("", "name", "ü" * 70), RECORDS)
        self._damage = Damage(self._rng)
        self._kinds = every_version()
        self._produce = extension("_produce_codec")
        self._records = extension("_record_codec")
        self.verdicts: Counter[str] = Counter()

    def run(self, count: int) -> None:
        """So many runs. Raises AssertionError, whose message has the bytes, for a decoder that errs."""
        rng = self._rng
        done = 0
        while done < count:
            times = min(_DAMAGES_PER_MESSAGE, count - done)
            done += times
            if rng.random() < _BATCHES:
                for _ in range(times):
                    self._batch(self._damage.batch(rng.choice(RECORDS)))
                continue
            cls, version = rng.choice(self._kinds)
            pieces = pieces_of(self._sensible.message(cls, version), version)
            laid = self._damage.partly(pieces)
            for number in range(1, times + 1):
                self._message(cls, version, self._damage.once(laid))
                if number % _LAST_DAMAGES == 0:
                    laid = self._damage.partly(pieces)

    def _message(self, cls: type[Any], version: int, body: bytes) -> None:
        try:
            found, _ = decode_from(cls, version, body, 0, _ELEMENTS_MAX)
        except MalformedMessage:
            found = None
        except Exception as error:
            raise AssertionError(f"{cls.__name__} v{version}: {body.hex()}") from error
        self.verdicts["malformed" if found is None else "message"] += 1
        if not issubclass(cls, Request):
            return
        self._header(cls.api.key.to_bytes(2) + version.to_bytes(2) + body)
        decoder = DECODERS.get(cls.api.key)
        if decoder is None:
            return
        compiled = decoder(memoryview(body), version, 0)
        if compiled is not None:
            self.verdicts["message of compiled code"] += 1
            assert compiled == found, f"{cls.__name__} v{version}: {body.hex()}"

    def _header(self, frame: bytes) -> None:
        """The body as the rest of a header: a client id of any length, and tagged fields."""
        try:
            expected = request_fields(frame)
        except MalformedMessage:
            expected = None
        if WIRE is not None:
            found = WIRE.request_fields(memoryview(frame), flexible_requests())
            assert found is None or found == expected, frame.hex()

    def _batch(self, data: bytes) -> None:
        try:
            header = read_header(data)
        except BrokerError:
            header = None
        self.verdicts["no batch" if header is None else "batch"] += 1
        self._plain(data)
        if header is not None and len(data) >= HEADER_SIZE:
            self._loops(data, header)

    def _plain(self, data: bytes) -> None:
        if self._produce is None:
            return
        wanted = _SIZE_MAX, START_MS, _DAY_MS, _DAY_MS
        found = self._produce.plain_header(memoryview(bytearray(data)), *wanted)
        expected = plain_header_in_python(memoryview(bytearray(data)), *wanted)
        assert found == expected, data.hex()
        self.verdicts["plain batch"] += found is not None

    def _loops(self, data: bytes, header: BatchHeader) -> None:
        arguments = (
            data[HEADER_SIZE:], header.record_count, header.last_offset_delta, header.base_offset,
            header.base_timestamp,
        )  # fmt: skip
        expected = _outcome(record_codec.decode, arguments)
        self.verdicts["damaged records" if expected is None else "records"] += 1
        if self._records is not None:
            assert _outcome(self._records.decode, arguments) == expected, data.hex()


def _outcome(decode: Callable[..., Any], arguments: tuple[Any, ...]) -> object:
    """What a decoder of records returns, in tuples all through; None for damaged records. Where two things
    are wrong, the decoders may name either."""
    try:
        *columns, headers = decode(*arguments)
    except (IndexError, ValueError):
        return None
    shown = None if headers is None else [tuple(map(tuple, each)) for each in headers]
    return (*map(_as_list, columns), shown)


def _as_list(column: Any) -> object:
    return None if column is None else list(column)


def main() -> None:
    parser = argparse.ArgumentParser(description="Have every decoder read damaged messages and batches.")
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}: {arguments.count} runs", flush=True)
    runs, begun_s, done = Runs(arguments.seed), time.perf_counter(), 0
    while done < arguments.count:
        step = min(500_000, arguments.count - done)
        runs.run(step)
        done += step
        print(f"{done} runs in {time.perf_counter() - begun_s:.0f} s: {dict(runs.verdicts)}", flush=True)


if __name__ == "__main__":
    main()
