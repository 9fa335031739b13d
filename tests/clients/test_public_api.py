"""The public API: every name can be imported, whatever packages an application has beside it."""

from __future__ import annotations

import ast
import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast_log
from holdfast_log import aio
from holdfast_log.clients import errors as client_errors
from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.protocol import errors as protocol_errors
from holdfast_log.protocol.topic_partition import TopicPartition

HOME = Path(__file__).parents[2]


@pytest.mark.parametrize("name", holdfast_log.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(holdfast_log, name) is not None


ERRORS = {
    name: value
    for module in (client_errors, protocol_errors)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == module.__name__
}


def example_of(kind: type[Exception]) -> Exception:
    match kind.__name__:
        case "GuardMismatchError":
            return client_errors.GuardMismatchError("mismatch", {TopicPartition("t", 0): 5})
        case "OffsetMismatchError":
            return protocol_errors.OffsetMismatchError(
                message="mismatch", next_offset=5, last_leader_epoch=2, append_ids_from=3
            )
        case "AppendIdUnknownError":
            return protocol_errors.AppendIdUnknownError(message="unknown", next_offset=5, append_ids_from=3)
        case "KeyVersionMismatchError":
            return protocol_errors.KeyVersionMismatchError(message="mismatch", versions=[(0, 5)])
        case "UndeliveredError":
            return client_errors.UndeliveredError([client_errors.Loss("t", 0, 5, ValueError("why"))])
        case "ConnectionFailedError":
            return client_errors.ConnectionFailedError("x:1: no", client_errors.ConnectionProblem.REFUSED)
        case "RecordDeserializationError":
            record = ConsumerRecord("flights", 0, 5, 1_000, b"k", b"bad", (("trace", b"1"),))
            return client_errors.RecordDeserializationError(record, "value", "ValueError: bad")
    if issubclass(kind, protocol_errors.BrokerError):
        return kind(protocol_errors.ErrorCode.INVALID_REQUEST, "what the broker said")
    return kind("what happened")


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_error_is_exported_and_survives_a_pickle(name: str) -> None:
    """Process pools and Spark pass errors on as pickles."""
    assert getattr(holdfast_log, name) is ERRORS[name] and name in holdfast_log.__all__
    error = example_of(ERRORS[name])
    error.add_note("a note")

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error) and str(copy) == str(error)
    assert vars(copy).keys() == vars(error).keys() and copy.__notes__ == ["a note"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Prodcer"):
        holdfast_log.Prodcer  # noqa: B018


@pytest.mark.parametrize("module", [holdfast_log, aio])
def test_type_checkers_see_the_names_that_can_be_imported(module: Any) -> None:
    block = next(node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.If))
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = {
        name: f"holdfast_log.{source}.{name}" for source, names in module._MODULES.items() for name in names
    }

    assert seen == found and len(found) == len(module.__all__)


@pytest.mark.parametrize(
    "stranger", ["clients", "broker", "protocol", "pipeline", "coordinator", "checker", "holdfast"]
)
@pytest.mark.parametrize("shape", ["{}.py", "{}/__init__.py"])
def test_packages_of_the_application_do_not_shadow_ours(tmp_path: Path, stranger: str, shape: str) -> None:
    file = tmp_path / shape.format(stranger)
    file.parent.mkdir(exist_ok=True)
    file.write_text("MINE = True\n")
    program = (
        f"import {stranger}, holdfast_log\n"
        "for name in holdfast_log.__all__: getattr(holdfast_log, name)\n"
        f"print({stranger}.MINE)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{HOME}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (answer.stdout.strip(), answer.returncode) == ("True", 0), answer.stderr


SLOW_TO_IMPORT = {
    "asyncio", "click", "concurrent.futures", "difflib", "email", "importlib.metadata", "javaproperties",
    "json", "kazoo", "logging", "numpy", "pathlib", "pkgutil", "prometheus_client", "pyarrow", "rich",
    "snappy", "ssl", "tempfile", "twisted", "urllib.parse", "zipfile",
}  # fmt: skip
MESSAGES = {
    "Producer": {"api_versions", "init_producer_id", "leader_hint", "metadata", "produce"},
    "Consumer": {
        "api_versions", "fetch", "leader_hint", "list_offsets", "metadata", "offset_for_leader_epoch",
    },
}  # fmt: skip
"""Files of the requests that each client always sends, and of their parts."""


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_importing_a_client_imports_few_modules_and_compiles_no_codec(name: str) -> None:
    """Counts imports and compiled functions instead of measuring time, which depends on the machine."""
    program = (
        "import sys; before = set(sys.modules); codecs = []\n"
        "sys.addaudithook(lambda event, given:"
        " codecs.append(given[1]) if event == 'compile' and 'coder of ' in str(given[1]) else None)\n"
        f"import holdfast_log; holdfast_log.{name}; print(*sorted(set(sys.modules) - before))\n"
        "print(len(codecs))\n"
        "from holdfast_log.protocol.messages.metadata import MetadataRequest\n"
        "from holdfast_log.protocol.schema import encode\n"
        "encode(MetadataRequest(topics=None), 9); print(*codecs)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=HOME,
        env={"PYTHONPATH": ":".join([str(HOME), *sys.path])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported, compiled_by_import, compiled_by_use = answer.stdout.splitlines()
    modules = imported.split()

    assert not SLOW_TO_IMPORT & set(modules)
    assert len(modules) < 166, modules
    messages = {
        module.rpartition(".")[2]
        for module in modules
        if module.startswith("holdfast_log.protocol.messages.")
    }
    assert messages == MESSAGES[name]
    assert (compiled_by_import, compiled_by_use) == ("0", "<encoder of MetadataRequest v9>")
