"""What the console consumer prints of a message, and how keys and values become text."""

from __future__ import annotations

import struct
from pathlib import Path
from uuid import UUID

import click
import pytest
from click.testing import CliRunner

from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.clients.tools.console_consumer import console_consumer, deserializer, line_format
from holdfast_log.clients.tools.readable import readable_by

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
RECORD = ConsumerRecord(
    "t", 3, 42, 1000, b"k", b"v", (("h", struct.pack(">q", -7)), ("n", None)), leader_epoch=5
)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("String", b"\xc3\xa4", "ä"),
        ("org.apache.kafka.common.serialization.StringDeserializer", b"a", "a"),
        ("short", struct.pack(">h", -2), "-2"),
        ("IntegerDeserializer", struct.pack(">i", 2**31 - 1), "2147483647"),
        (
            "org.apache.kafka.common.serialization.LongDeserializer",
            struct.pack(">q", -(2**63)),
            str(-(2**63)),
        ),
        ("Float", struct.pack(">f", 0.5), "0.5"),
        ("DoubleDeserializer", struct.pack(">d", -0.25), "-0.25"),
        ("Boolean", b"\1", "true"),
        ("boolean", b"\0", "false"),
        ("UUID", str(ID).encode(), str(ID)),
    ],
)
def test_bytes_become_text_as_by_kafkas_deserializers(name: str, content: bytes, text: str) -> None:
    assert readable_by(name, "--value-deserializer")(content).decode() == text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Long", b"abc"),
        ("Integer", b""),
        ("Short", b"abc"),
        ("Boolean", b"x"),
        ("UUID", b"no"),
        ("Double", b"1"),
    ],
)
def test_bytes_of_another_type_are_refused(name: str, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+"):
        readable_by(name, "--value-deserializer")(content)


def test_an_unknown_deserializer_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(click.UsageError, match=r"--key-deserializer com\.example\.Mine: .* String, .* UUID"):
        readable_by("com.example.Mine", "--key-deserializer")
    assert deserializer(None, "--key-deserializer") is None


def test_the_parts_of_a_message_are_printed_in_kafkas_order() -> None:
    show = line_format({
        "print.timestamp": "true", "print.partition": "true", "print.offset": "true", "print.epoch": "true",
        "print.headers": "true", "print.key": "true", "headers.deserializer": "Long", "key.separator": "|",
        "null.literal": "-", "key.deserializer": "String",
    })  # fmt: skip
    assert show(RECORD) == b"CreateTime:1000|Partition:3|Offset:42|Epoch:5|h:-7,n:-|k|v\n"
    assert line_format({"print.epoch": "true"})(RECORD._replace(leader_epoch=-1)) == b"Epoch:NOT_PRESENT\tv\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--isolation-level", "serializable"), "Invalid value for '--isolation-level'"),
        (("--value-deserializer", "Mine"), "--value-deserializer Mine: the deserializers are"),
        (("--property", "value.deserializer=Mine"), "--value-deserializer Mine"),
        (("--property", "print.delivery=true"), "print.delivery: the properties are"),
    ],
)
def test_wrong_options_are_refused_before_a_broker_is_asked(options: tuple[str, ...], message: str) -> None:
    given = ["--bootstrap-server", "127.0.0.1:1", "--topic", "t", *options]
    result = CliRunner().invoke(console_consumer, given)
    assert result.exit_code == 2
    assert message in result.output


def test_a_file_may_say_what_to_print(tmp_path: Path) -> None:
    file = tmp_path / "formatter.properties"
    file.write_text("value.deserializer=Mine\n")
    given = ["--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--formatter-config", str(file)]
    result = CliRunner().invoke(console_consumer, given)
    assert (result.exit_code, "--value-deserializer Mine" in result.output) == (2, True)
    missing = CliRunner().invoke(console_consumer, [*given[:-1], str(tmp_path / "none")])
    assert missing.exit_code == 1 and "No such file" in str(missing.exception)
