"""Text from elsewhere, made fit for one line of a log or of a terminal."""

from __future__ import annotations

LINE_CHARACTERS_MAX = 8192
"""Longest text that a log line repeats, in characters: any sentence of ours fits, and none fills a disk."""


def one_line(text: str, characters_max: int = LINE_CHARACTERS_MAX) -> str:
    r"""`text` without anything that ends a line or moves a cursor, cut at `characters_max` characters.

    What is not printable becomes an escape of Python's, such as \n, \x1b or \u202e: control characters, line
    and paragraph separators, spaces other than the usual one, marks that turn the direction of writing or
    have no width, lone surrogates. A backslash stays as it is. The mark of a cut says how many characters of
    `text` are missing.
    """
    if len(text) <= characters_max and text.isprintable():
        return text
    shown: list[str] = []
    length = 0
    for position, character in enumerate(text):
        piece = character if character.isprintable() else _escaped(character)
        length += len(piece)
        if length > characters_max:
            shown.append(f"… ({len(text) - position} characters cut)")
            break
        shown.append(piece)
    return "".join(shown)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
