"""What a bug in compiled code is, and where it is put."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parents[2]
PACKAGE = HOME / "holdfast_log"


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug of the compiled code: its name, its effect, and the change that makes it.

    `source` is a path below `holdfast_log`; `text` occurs in it once. `tests` are paths of pytest, with a
    test's name or without; one of them at least must fail. `also` are words of `-k`, for tests of many cases.
    """

    name: str
    what: str
    source: str
    text: str
    replacement: str
    tests: tuple[str, ...]
    extensions: tuple[str, ...] = ()
    """Those that are built anew, by their names below `holdfast_log`; none: that of the source itself."""
    also: str = ""

    @property
    def built(self) -> tuple[str, ...]:
        return self.extensions or (self.source.removesuffix(".c").replace("/", "."),)

    def changed(self, text: str) -> str:
        """The source's text with the bug. Raises ValueError if the text to replace does not occur once."""
        found = text.count(self.text)
        if found != 1:
            raise ValueError(
                f"{self.name}: the text to replace occurs {found} times in {self.source}, not once. If the "
                f"source has changed, put the bug where the check is now.\n{self.text}"
            )
        return text.replace(self.text, self.replacement)
