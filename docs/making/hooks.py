"""What mkdocs does beyond its configuration (mkdocs.yml): pages made from the README, the examples and the
public names, and links to files that are not part of the site shown as names of files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

HOME = Path(__file__).parents[2]
DOCS = HOME / "docs"
INHERITED = "    options:\n      inherited_members: true\n"
"""For a class whose calls are in several files."""
_IN_SEVERAL_FILES = ("Admin", "Consumer", "Producer")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from other files."""
    made = {"getting-started.md": _getting_started(), "examples/index.md": _examples(), **dict(_reference())}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show links that lead out of the site, to sources and settings, as the names of those files."""
    folder = (DOCS / page.file.src_uri).parent

    def shown(match: re.Match[str]) -> str:
        words, target = match.groups()
        path = target.partition("#")[0]
        if "://" in target or not path:
            return match.group()
        found = (folder / path).resolve()
        if found == DOCS / "examples":
            return f"[{words}]({'../' * page.file.src_uri.count('/')}examples/index.md)"
        if found.is_relative_to(DOCS) and not found.is_dir():
            return match.group()
        return words if words.startswith("`") else f"`{words}`" if "/" in words or "." in words else words

    return _LINK.sub(shown, markdown)


def _getting_started() -> str:
    """The README, with links as they are from the folder of the documentation."""

    def moved(match: re.Match[str]) -> str:
        words, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match.group()
        if target.startswith("docs/"):
            return f"[{words}]({target.removeprefix('docs/')})"
        return f"[{words}](../{target})"

    text = _LINK.sub(moved, (HOME / "README.md").read_text())
    return text.replace("# Holdfast\n", "# Getting started\n", 1)


def _examples() -> str:
    """All programs in docs/examples, with what they are for."""
    introduction = "Complete programs. The tests run each, kill it, pause it, and race it with another."
    parts = [f"# Examples\n\n{introduction}\n"]
    for path in sorted((DOCS / "examples").glob("*.py")):
        source = path.read_text()
        purpose = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0]
        parts.append(f"## {path.name}\n\n{purpose}\n\n```python\n{source}```\n")
    return "\n".join(parts)


def public_names() -> dict[str, list[str]]:
    """The public names by the module that has them, as holdfast_log/__init__.py lists them."""
    return _exported(HOME / "holdfast_log" / "__init__.py")


def _exported(path: Path) -> dict[str, list[str]]:
    """What a module offers to type checkers."""
    tree = ast.parse(path.read_text())
    found: dict[str, list[str]] = {}
    for block in tree.body:
        if not (isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"):
            continue
        for line in block.body:
            if isinstance(line, ast.ImportFrom) and line.module:
                found.setdefault(line.module, []).extend(each.name for each in line.names)
    return found


def _reference() -> Iterator[tuple[str, str]]:
    names = public_names()
    errors = ["holdfast_log.clients.errors", "holdfast_log.protocol.errors"]
    admin = "holdfast_log.clients.admin"
    rest = [f"{module}.{name}" for module, found in names.items() for name in found]
    errors_of = [each for each in rest if each.rpartition(".")[0] in errors]
    of_admin = [f"{admin}.{name}" for name in _all_of(HOME / "clients" / "admin" / "__init__.py")]
    others = [each for each in rest if each not in errors_of and each not in of_admin]
    yield (
        "reference/index.md",
        _listed(
            "API of the clients",
            "The public names of `holdfast_log`: `from holdfast_log import Producer`. What is not listed may "
            "change between versions. The admin client and errors have pages of their own; "
            "[clients.md](../clients.md) explains how to use them.",
            others,
        ),
    )
    yield (
        "reference/admin.md",
        _listed(
            "The admin client",
            "`from holdfast_log import Admin, NewTopic`; the others are in `holdfast_log.clients.admin`.",
            of_admin,
        ),
    )
    yield (
        "reference/aio.md",
        _listed(
            "The clients for asyncio",
            "`from holdfast_log.aio import AsyncConsumer`. Every method of the ordinary client is there as a "
            "coroutine with the same arguments; listed are those that differ, and what is meant by that. "
            "[clients.md](../clients.md#with-asyncio) explains how to use them.",
            [
                f"{module}.{name}"
                for module, found in _exported(HOME / "holdfast_log" / "aio.py").items()
                for name in found
            ],
        ),
    )
    yield (
        "reference/errors.md",
        _listed("Errors", "Every error of the clients. `from holdfast_log import BrokerError`.", errors_of),
    )


def _all_of(path: Path) -> list[str]:
    """The names in a module's __all__."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    raise LookupError(f"{path} has no __all__")


def _listed(title: str, introduction: str, names: list[str]) -> str:
    parts = [f"::: {name}\n{INHERITED if name.endswith(_IN_SEVERAL_FILES) else ''}" for name in names]
    return f"# {title}\n\n{introduction}\n\n" + "\n".join(parts)
