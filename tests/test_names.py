"""No two public classes or type aliases of the project share a name."""

from __future__ import annotations

import ast
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
