"""Messages in pieces have the bytes of the encoder, and most damage changes them."""

from __future__ import annotations

import random

from holdfast_log.protocol.schema import encode
from tests.models.batches import batch
from tests.protocol.damaged_decoding import Runs
from tests.protocol.pieces import Damage, Sensible, joined, pieces_of, uvarint
from tests.protocol.strategies import every_version


def test_pieces_of_every_message_and_version_are_the_encoded_message() -> None:
    sensible = Sensible(random.Random(1), {}, ("", "name", "ü" * 70), (batch(b"one"),))
    for cls, version in every_version():
        for _ in range(3):
            message = sensible.message(cls, version)
            assert joined(pieces_of(message, version)) == encode(message, version), (cls, version)


def test_nearly_all_damage_changes_the_message() -> None:
    rng = random.Random(2)
    sensible = Sensible(rng, {}, ("", "name"), (batch(b"one"), batch(b"two", b"three")))
    damage = Damage(rng)
    changed = total = 0
    for cls, version in every_version():
        pieces = pieces_of(sensible.message(cls, version), version)
        for _ in range(5):
            total += 1
            changed += damage.apply(pieces) != joined(pieces)
    assert changed > 0.8 * total


def test_a_varint_may_be_longer_than_it_need_be() -> None:
    assert uvarint(5) == b"\x05"
    assert uvarint(5, 3) == b"\x85\x80\x00"
    assert uvarint(300) == b"\xac\x02"


def test_decoders_agree_about_damaged_messages_and_batches() -> None:
    runs = Runs(seed=3)
    runs.run(10_000)
    verdicts = runs.verdicts
    for verdict in ("message", "malformed", "batch", "records", "damaged records"):
        assert verdicts[verdict] > 100, verdicts
