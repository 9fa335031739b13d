"""Bytes of messages as text, JSON and hex."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.console.decoding import (
    PREVIEW_CHARS,
    SHOWN_MAX,
    Content,
    Form,
    decoded,
    hex_rows,
    is_text,
    key_bytes,
    preview,
)
from holdfast_log.console.wording import harmless, rate, size, span, with_code


def shown(content: bytes, form: Form = Form.AUTO) -> Content:
    found = decoded(content, form)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (b"plain words", Form.TEXT), (b'{"a": 1}', Form.JSON), (b"[1, 2]", Form.JSON), (b"12", Form.TEXT),
        (b'"text"', Form.TEXT), (b"\x00\x01", Form.HEX), ("Gr\u00fc\u00dfe\n\ttab".encode(), Form.TEXT),
        (b"\xff\xfe", Form.HEX), (b"", Form.TEXT), (b"{broken", Form.TEXT),
    ],
)  # fmt: skip
def test_the_form_that_fits_is_chosen(content: bytes, form: Form) -> None:
    assert shown(content).form is form


def test_json_is_indented_and_otherwise_as_it_was_written() -> None:
    """A number that a float cannot hold, and a name that is there twice, must not change on the way."""
    content = (
        '{"big": 12345678901234567890123, "price": 1.50, "e": 1E5, "a": [], "a": {}, '
        '"t": "\u00e4\\n", "n": null}'
    )

    assert shown(content.encode()).text == (
        '{\n  "big": 12345678901234567890123,\n  "price": 1.50,\n  "e": 1E5,\n  "a": [],\n  "a": {},\n'
        '  "t": "\u00e4\\n",\n  "n": null\n}'
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_what_was_json_is_still_the_same_json(value: object) -> None:
    assert json.loads(shown(json.dumps(value).encode(), Form.JSON).text) == value


def test_deep_json_is_shown_as_text() -> None:
    assert shown(b"[" * 50_000).form is Form.TEXT


def test_asked_for_json_but_none_says_so() -> None:
    found = shown(b"words", Form.JSON)

    assert (found.form, found.note) == (Form.TEXT, "This is not JSON.")


def test_hex_has_the_position_the_bytes_and_their_ascii() -> None:
    assert hex_rows(b"Holdfast holds <fast>") == (
        "00000000  48 6f 6c 64 66 61 73 74 20 68 6f 6c 64 73 20 3c  Holdfast holds <\n"
        "00000010  66 61 73 74 3e                                   fast>"
    )


def test_long_contents_are_cut_and_it_is_said() -> None:
    for form in Form:
        found = shown(b"x" * (3 * SHOWN_MAX), form)
        assert "The first" in found.note and len(found.text) < 6 * SHOWN_MAX
        assert found.size == 3 * SHOWN_MAX


@given(st.binary(max_size=300))
def test_everything_can_be_shown_in_every_form(content: bytes) -> None:
    for form in Form:
        assert isinstance(shown(content, form).text, str)
    assert len(preview(content) or "") <= PREVIEW_CHARS + 1


def test_a_character_that_is_cut_off_leaves_text_text() -> None:
    assert is_text("\u00e4\u00f6".encode()[:-1])
    assert not is_text(b"\xc3")
    assert not is_text(b"a\xc3b")


def test_a_preview_is_one_line() -> None:
    assert preview(b"a\n  b\tc") == "a b c"
    assert preview(None) is None
    assert preview(b"\x00\x01") == "00 01"


def test_keys_are_text_or_hex() -> None:
    assert (key_bytes("k"), key_bytes("0x00ff"), key_bytes("0")) == (b"k", b"\x00\xff", b"0")
    with pytest.raises(ValueError, match="pairs of hex digits"):
        key_bytes("0xf")


def test_characters_that_mislead_the_eye_are_spelt_out() -> None:
    assert harmless("a\u202eb\x00c\u2066\ud800") == "a\\u202eb\\u0000c\\u2066\\ud800"
    assert harmless("\u00e4\u6f22\U0001f600 a\n\tb") == "\u00e4\u6f22\U0001f600 a\n\tb"


def test_back_quotes_make_code_and_nothing_else() -> None:
    assert with_code("set `a<b` to <i>") == "set <code>a&lt;b</code> to &lt;i&gt;"
    assert with_code("one ` alone <i>") == "one ` alone &lt;i&gt;"


def test_numbers_are_worded() -> None:
    assert [size(0), size(1023), size(1536), size(10**9), size(None)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "954 MiB",
        "\u2013",
    ]
    assert [rate(0), rate(0.01), rate(2.5), rate(12345.6), rate(None)] == [
        "0",
        "< 0.1",
        "2.5",
        "12,346",
        "\u2013",
    ]
    assert [span(0), span(61), span(3_700), span(90_000)] == ["0 s", "1 min", "1 h 1 min", "1 day 1 h"]
