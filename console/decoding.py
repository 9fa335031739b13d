"""Bytes of a message as a person reads them: text, JSON, or hex."""

from __future__ import annotations

import enum
import json
import unicodedata
from dataclasses import dataclass

SHOWN_MAX = 256 * 1024
"""How many bytes of a key or value a page shows."""
PREVIEW_CHARS = 160
"""How many characters of a value a list shows."""
_ROW = 16
_HEX_MAX = 64 * 1024


class Form(enum.Enum):
    """How bytes are shown; the value is its name in addresses of pages."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes as text. `form` is the one that was used, `note` what the reader should know, or empty."""

    text: str
    form: Form
    size: int
    note: str = ""


def decoded(content: bytes | None, form: Form) -> Content | None:
    """The content in this form, or in another that fits if it does not; None for a message without one."""
    if content is None:
        return None
    cut = content[:SHOWN_MAX]
    note = "" if len(cut) == len(content) else f"The first {len(cut):,} of {len(content):,} bytes."
    if form in (Form.AUTO, Form.JSON):
        pretty = _pretty(content) if len(content) <= SHOWN_MAX else None
        if pretty is not None and (form is Form.JSON or pretty[:1] in "{["):
            return Content(pretty, Form.JSON, len(content))
        if form is Form.JSON:
            note = f"This is not JSON. {note}".rstrip()
    if form is Form.HEX or (form is not Form.TEXT and not is_text(cut)):
        shown = content[:_HEX_MAX]
        if len(shown) < len(content):
            note = f"The first {len(shown):,} of {len(content):,} bytes."
        return Content(hex_rows(shown), Form.HEX, len(content), note)
    if form is Form.TEXT and not is_text(cut):
        note = f"This is not text in UTF-8: bytes that are none are shown as �. {note}".rstrip()
    return Content(cut.decode(errors="replace"), Form.TEXT, len(content), note)


def preview(content: bytes | None) -> str | None:
    """One line of the content for a list, in text or hex."""
    if content is None:
        return None
    start = content[: PREVIEW_CHARS * 4]
    if is_text(start):
        text = " ".join(start.decode(errors="ignore").split())
        return text if len(text) <= PREVIEW_CHARS else text[:PREVIEW_CHARS] + "…"
    shown = content[: PREVIEW_CHARS // 3]
    return shown.hex(" ") + ("…" if len(shown) < len(content) else "")


def is_text(content: bytes) -> bool:
    """Whether the bytes are UTF-8 without control characters, but for line ends and tabs. The last character
    may be cut off."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data" or len(content) - error.start > 3 or not error.start:
            return False
        text = content[: error.start].decode()
    return not any(unicodedata.category(each) == "Cc" and each not in "\n\r\t" for each in text)


def hex_rows(content: bytes) -> str:
    """A dump: the position, sixteen bytes in hex, and the same bytes as ASCII."""
    rows = []
    for start in range(0, len(content), _ROW):
        part = content[start : start + _ROW]
        ascii_text = "".join(chr(each) if 32 <= each < 127 else "·" for each in part)
        rows.append(f"{start:08x}  {part.hex(' '):<{_ROW * 3 - 1}}  {ascii_text}")
    return "\n".join(rows)


def _pretty(content: bytes) -> str | None:
    """Indented JSON, or None if it is none. Numbers stay as they are written, and so do repeated names."""
    try:
        value = json.loads(content.decode(), parse_float=_Number, parse_int=_Number, object_pairs_hook=_Pairs)
        return _indented(value, "")
    except (ValueError, RecursionError):
        return None


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class _Pairs(list[tuple[str, object]]):
    """An object's names and values, in their order."""


def _indented(value: object, margin: str) -> str:
    inner = margin + "  "
    match value:
        case _Pairs() if value:
            rows = [f"{inner}{_quoted(name)}: {_indented(each, inner)}" for name, each in value]
            return "{\n" + ",\n".join(rows) + f"\n{margin}}}"
        case _Pairs():
            return "{}"
        case list() if value:
            return "[\n" + ",\n".join(inner + _indented(each, inner) for each in value) + f"\n{margin}]"
        case _Number():
            return str(value)
        case _:
            return _quoted(value)


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def key_bytes(text: str) -> bytes:
    """The key that a person has typed: 0x and hex digits, or text. Raises ValueError."""
    if text.startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise ValueError("after 0x the key has to consist of pairs of hex digits") from None
    return text.encode()
