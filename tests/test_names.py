"""No two public types share a name, and the errors that docstrings of the clients name exist."""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).parent.parent
PACKAGES = (
    "protocol",
    "clients",
    "coordinator",
    "broker",
    "pipeline",
    "holdfast_log",
    "benchmarks",
    "checker",
    "command",
    "console",
    "testing",
)


def public_types(text: str) -> Iterator[str]:
    """The names of the public classes and type aliases at the top level of a source."""
    for node in ast.parse(text).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                pass
            case _:
                continue
        if name[0].isupper() and any(letter.islower() for letter in name):
            yield name


def test_no_two_public_types_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for source in sorted((HOME / package).rglob("*.py")):
            for name in public_types(source.read_text()):
                homes[name].append(str(source.relative_to(HOME)))

    shared = {name: found for name, found in homes.items() if len(found) > 1}

    assert not shared


def test_public_types_yields_classes_and_aliases_but_no_private_or_constant_names() -> None:
    text = (
        "class Seen: ...\n"
        "Alias: TypeAlias = int\nOther = dict[str, int]\nclass _Hidden: ...\nLIMIT = 1\nx = 2\n"
    )

    assert list(public_types(text)) == ["Seen", "Alias", "Other"]


# Errors that docstrings promise

OF_OTHERS = {"ValidationError"}
"""Errors of other libraries: jsonschema's."""
PROMISED = re.compile(r"(?<![\w.])[A-Z][a-z]\w*Error\b")


def docstrings(text: str) -> Iterator[str]:
    """The docstrings of a source: of itself, of its classes and of its functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = ast.get_docstring(node)
            if found is not None:
                yield found


def test_every_error_that_a_docstring_of_the_clients_names_exists() -> None:
    sources = {
        path: path.read_text()
        for package in ("protocol", "clients", "holdfast_log")
        for path in sorted((HOME / package).rglob("*.py"))
    }
    known = (
        {name for text in sources.values() for name in public_types(text)} | set(dir(builtins)) | OF_OTHERS
    )

    unknown = {
        f"{path.relative_to(HOME)}: {name}"
        for path, text in sources.items()
        for docstring in docstrings(text)
        for name in PROMISED.findall(docstring)
        if name not in known
    }

    assert not unknown
    assert "UndeliveredError" in known, "the search finds classes"
    assert list(PROMISED.findall("Raises GoneError; not kafka.errors.OtherError, and no IOError.")) == [
        "GoneError"
    ]


MESSAGE_READ = re.compile(r"\brecord\w*(\[[^\]]*\])?\.message\b")


def test_no_test_reads_the_message_attribute_of_a_log_record() -> None:
    """`message` is there only after a formatter of the standard library. PySpark's, which the handlers of
    pytest get once Spark has logged a failed query in the same process, leaves it out. `getMessage()` works.
    """
    readers = [
        str(path.relative_to(HOME))
        for path in sorted((HOME / "tests").rglob("*.py"))
        if MESSAGE_READ.search(path.read_text())
    ]

    assert readers == []
