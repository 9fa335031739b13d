"""The rules that make a principal of a certificate's name (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?))\s*(?:,|$)"
)
_BACK_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class NoRule(Exception):
    """No rule fits a certificate's name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """`pattern` None: the name as it is."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._expanded, name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _expanded(self, match: re.Match[str]) -> str:
        """The replacement with $1 as Java's replaceAll has it; a reference to a group that there is not
        stands for itself, as in Kafka."""

        def replaced(found: re.Match[str]) -> str:
            if found[1] is not None:
                return found[1]
            digits, rest = found[2], ""
            while len(digits) > 1 and int(digits) > match.re.groups:
                digits, rest = digits[:-1], digits[-1] + rest
            if int(digits) > match.re.groups:
                return found[0]
            return (match[int(digits)] or "") + rest

        return _BACK_REFERENCE.sub(replaced, self.replacement)


class PrincipalMapper:
    """The rules of `ssl.principal.mapping.rules`. Raises ValueError for text that is no list of rules."""

    def __init__(self, text: str) -> None:
        self._rules = tuple(_parsed(text))

    def principal(self, name: str) -> str:
        """The principal of a certificate's name, as `User:…`. Raises `NoRule`."""
        for rule in self._rules:
            found = rule.apply(name)
            if found is not None:
                return f"User:{found}"
        raise NoRule(name)


def check_rules(value: str) -> None:
    """Raises ValueError, with what is allowed, for text that is no list of rules."""
    PrincipalMapper(value)


def _parsed(text: str) -> Iterator[_Rule]:
    position, text = 0, text.strip()
    if not text:
        raise ValueError("at least one RULE:pattern/replacement/ or DEFAULT")
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(
                f"RULE:pattern/replacement/, with L or U after it or nothing, or DEFAULT, not "
                f"{text[position : position + 60]}"
            )
        position = match.end()
        if match["default"]:
            yield _Rule(None, "", "")
            continue
        try:
            pattern = re.compile(match["pattern"])
        except re.error as error:
            raise ValueError(f"a regular expression, not {match['pattern']}: {error}") from None
        yield _Rule(pattern, match["replacement"], match["case"])
