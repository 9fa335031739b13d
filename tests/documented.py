"""The shell commands in the README and in docs: each block, and which test executes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parents[1]
PAGES = (HOME / "README.md", *sorted((HOME / "docs").rglob("*.md")))
SHELLS = ("sh", "bash", "shell", "console")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(
    r"^\s*(?:\$ |sudo |scripts/|\.venv/|python3? |pip3? |holdfast |docker |apt-get |ssh |systemctl |git )"
)


@dataclass(frozen=True, slots=True)
class CommandBlock:
    """A fenced block of commands. `page` is its page, relative to the checkout."""

    page: str
    text: str

    @property
    def first(self) -> str:
        """The first command, without its comment: with the page it names the block."""
        lines = [line.partition("  #")[0].strip() for line in self.text.splitlines()]
        return next(line for line in lines if line and not line.startswith("#"))


def blocks() -> Iterator[CommandBlock]:
    """Every block of shell commands."""
    for path in PAGES:
        for language, text in _BLOCK.findall(path.read_text()):
            if language in SHELLS:
                yield CommandBlock(str(path.relative_to(HOME)), text)


def block(page: str, first: str) -> str:
    """The text of the only block of a page whose first command begins so."""
    (found,) = [each for each in blocks() if each.page == page and each.first.startswith(first)]
    return found.text


def hidden_commands() -> Iterator[str]:
    """Lines in other blocks that look like commands."""
    for path in PAGES:
        for language, text in _BLOCK.findall(path.read_text()):
            if language in ("", "text"):
                yield from (f"{path.name}: {line}" for line in text.splitlines() if _COMMAND.match(line))


def commands(text: str) -> list[str]:
    """The commands of a block, one each, with what continues on further lines and without comments."""
    joined = text.replace("\\\n", " ")
    lines = [re.sub(r"\s+#\s.*$", "", line).strip() for line in joined.splitlines()]
    return [" ".join(line.split()) for line in lines if line and not line.startswith("#")]
