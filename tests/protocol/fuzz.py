"""Malformed frames for every decoder: mutated, truncated and random ones.

Whatever the bytes, a decoder gives a message or raises MalformedMessage, and takes no more memory than the
bytes can account for.

    python -m tests.protocol.fuzz --count 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

from holdfast_log.protocol.api import Response
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.fields import Array, Field, Fixed, Struct, Variable, WireType, fields_of
from holdfast_log.protocol.headers import decode_request_header, decode_response
from holdfast_log.protocol.schema import MalformedMessage, ProtocolMessage, decode_from, encode
from tests.protocol.strategies import every_version

SAMPLES_PER_VERSION = 3
_NASTY = [
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff" * 6,
    b"\x80\x00",
]


class Frames:
    """An endless supply of frames of every message and version, most of them damaged, from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._samples = [
            (cls, version, encode(self._message(cls, version), version))
            for cls, version in every_version()
            for _ in range(SAMPLES_PER_VERSION)
        ]

    def __iter__(self) -> Iterator[tuple[type[ProtocolMessage], int, bytes]]:
        while True:
            cls, version, sample = self._random.choice(self._samples)
            yield cls, version, self._damaged(sample)

    def _damaged(self, sample: bytes) -> bytes:
        rng = self._random
        kind = rng.randrange(6)
        if kind == 0:
            return rng.randbytes(rng.randrange(200))
        if kind == 1:
            return sample[: rng.randrange(len(sample) + 1)]
        damaged = bytearray(sample)
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            position = rng.randrange(len(damaged) + 1)
            match kind:
                case 2:
                    damaged[position : position + 1] = rng.randbytes(1)
                case 3:
                    nasty = rng.choice(_NASTY)
                    damaged[position : position + len(nasty)] = nasty
                case 4:
                    damaged[position:position] = rng.choice(_NASTY)
                case _:
                    del damaged[position : position + rng.randrange(1, 5)]
        return bytes(damaged)

    def _message(self, cls: type[Any], version: int) -> Any:
        present = (field for field in fields_of(cls) if version in field.versions)
        return cls(**{field.name: self._field(field, version) for field in present})

    def _field(self, field: Field, version: int) -> Any:
        if version in field.nullable and self._random.random() < 0.2:
            return None
        return self._value(field.type, version)

    def _value(self, type_: WireType, version: int) -> Any:
        rng = self._random
        match type_:
            case Fixed(name="bool" | "uuid" | "float64"):
                return type_.default
            case Fixed():
                return rng.choice((0, 1, 100))
            case Variable.STRING:
                return rng.choice(("", "name", "ü" * 70))
            case Variable():
                return rng.randbytes(rng.choice((0, 5, 200)))
            case Array(element):
                return [self._value(element, version) for _ in range(rng.randrange(3))]
            case Struct(cls):
                return self._message(cls, version)
        raise AssertionError(type_)


def decode_frame(cls: type[ProtocolMessage], version: int, body: bytes) -> str:
    """Decodes the body alone and inside of a frame; "message" or "malformed", and no third thing."""
    outcome = "message"
    try:
        _message, end = decode_from(cls, version, body)
        assert 0 <= end <= len(body)
    except MalformedMessage:
        outcome = "malformed"
    api = cls.api  # type: ignore[attr-defined]
    try:
        if issubclass(cls, Response):
            decode_response(api.request, version, b"\x00\x00\x00\x01" + body)
        else:
            decode_request_header(api.key.to_bytes(2) + version.to_bytes(2) + body)
    except MalformedMessage:
        pass
    return outcome


def run(count: int, seed: int) -> Counter[str]:
    """Decodes `count` frames and counts the outcomes."""
    outcomes: Counter[str] = Counter()
    for (cls, version, body), _ in zip(Frames(seed), range(count), strict=False):
        try:
            outcomes[decode_frame(cls, version, body)] += 1
        except Exception as error:
            raise AssertionError(f"{cls.__name__} v{version}: {body.hex()}") from error
    return outcomes


def crowded(cls: type[Any], version: int, elements: int, depth: int = 0) -> Any:
    """A message whose arrays have as many elements as given, each as small as can be."""
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        if version not in field.versions:
            continue
        match field.type:
            case Array(element):
                count = elements if depth == 0 else 0
                values[field.name] = [_smallest(element, version) for _ in range(count)]
            case _:
                values[field.name] = None if version in field.nullable else _smallest(field.type, version)
    return cls(**values)


def _smallest(type_: WireType, version: int) -> Any:
    match type_:
        case Fixed():
            return type_.default
        case Variable.STRING:
            return ""
        case Variable():
            return b""
        case Array():
            return []
        case Struct(cls):
            return crowded(cls, version, 0, depth=1)


def peak_memory(cls: type[ProtocolMessage], version: int, body: bytes) -> int:
    """The most bytes of memory that decoding `body` took, its result included."""
    tracemalloc.start()
    try:
        decode_from(cls, version, body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Throw malformed frames at every decoder.")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}: {arguments.count} frames for {len(APIS)} APIs", flush=True)
    started = time.perf_counter()
    outcomes = run(arguments.count, arguments.seed)
    print(f"{dict(outcomes)} in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
