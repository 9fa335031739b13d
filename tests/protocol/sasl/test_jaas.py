"""Login modules in the syntax of Java's JAAS, and what is refused without showing a password."""

from __future__ import annotations

import pytest

from holdfast_log.protocol.sasl.jaas import JaasError, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_module_with_its_options() -> None:
    module = parse_jaas(
        f"""{PLAIN} required // the brokers' user
            username="admin" password='s"e' /* and
            others: */ user_admin = "a;b=c" user_al-ice=simple;
        """
    )
    assert module.options == {
        "username": "admin",
        "password": 's"e',
        "user_admin": "a;b=c",
        "user_al-ice": "simple",
    }
    assert (module.name, module.mechanisms) == ("PlainLoginModule", ("PLAIN",))


def test_a_backslash_takes_the_next_character_as_it_is() -> None:
    assert parse_jaas(f'{PLAIN} required password="a\\"b\\\\c";').options == {"password": 'a"b\\c'}


def test_a_module_without_options() -> None:
    module = parse_jaas("org.apache.kafka.common.security.scram.ScramLoginModule required;")
    assert module.options == {} and module.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a login module"),
        ('com.example.Other required x="hidden";', "none of PlainLoginModule"),
        (f'{PLAIN} username="hidden";', "required, requisite"),
        (f'{PLAIN} required password="hidden"', "semicolon"),
        (f'{PLAIN} required password="hidden', "put values in quotes"),
        (f"{PLAIN} required password=;", "password has no value"),
        (f'{PLAIN} required a="hidden" a="hidden";', "a is given twice"),
        (f'{PLAIN} required a="hidden"; {PLAIN} required;', "more than one login module"),
        (f'{PLAIN} required ="hidden";', "has no name"),
    ],
)
def test_what_is_wrong_is_said_without_a_password(text: str, said: str) -> None:
    with pytest.raises(JaasError, match=said) as raised:
        parse_jaas(text)
    assert "hidden" not in str(raised.value)


def test_a_module_is_shown_without_its_values() -> None:
    assert "hidden" not in repr(parse_jaas(f'{PLAIN} required password="hidden";'))
