"""`sasl.jaas.config`: one login module of Kafka with its options, in the syntax of Java's JAAS. Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="broker" password="secret" user_broker="secret" user_alice="hers";

A value is a word or is quoted; in quotes, a backslash takes the next character as it is. No error shows a
value: it could be a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast_log.protocol.sasl.mechanisms import (
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
)

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<word>[\w$.+\-/:@]+)
    |"(?P<double>(?:[^"\\]|\\.)*)"
    |'(?P<single>(?:[^'\\]|\\.)*)'
    |(?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_FLAGS = ("required", "requisite", "sufficient", "optional")
_MODULES = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": (SCRAM_SHA_256, SCRAM_SHA_512),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
}
_EXAMPLE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";'


class JaasError(ValueError):
    """The text is no JAAS configuration with one login module; the message says what is wrong."""


@dataclass(frozen=True, slots=True, repr=False)
class LoginModule:
    """A login module: its class without the package, the mechanisms that it is for, and its options."""

    name: str
    mechanisms: tuple[str, ...]
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, options {', '.join(sorted(self.options))})"


def parse_jaas(text: str) -> LoginModule:
    """The only login module of `text`. Raises `JaasError`."""
    tokens = _tokens(text)
    if len(tokens) < 3:
        raise JaasError(f"expected a login module, for example {_EXAMPLE}")
    (_, module), (_, flag), *rest = tokens
    name = module.rpartition(".")[2]
    mechanisms = _MODULES.get(name)
    if mechanisms is None:
        raise JaasError(f"the login module is none of {', '.join(_MODULES)}")
    if flag.lower() not in _FLAGS:
        raise JaasError(f"after the login module one of {', '.join(_FLAGS)} is missing")
    return LoginModule(name, mechanisms, _options(rest))


def _options(tokens: list[tuple[str, str]]) -> dict[str, str]:
    options: dict[str, str] = {}
    at = 0
    while tokens[at : at + 1] != [("sign", ";")]:
        key, equals, value = (tokens + [("end", "")] * 3)[at : at + 3]
        if key[0] != "word":
            raise JaasError("there is no semicolon (;) at its end, or an option has no name")
        if equals != ("sign", "=") or value[0] not in ("word", "text"):
            raise JaasError(f'the option {key[1]} has no value: write {key[1]}="…"')
        if key[1] in options:
            raise JaasError(f"the option {key[1]} is given twice")
        options[key[1]] = value[1]
        at += 3
    if at + 1 != len(tokens):
        raise JaasError("it has more than one login module, or text behind the semicolon")
    return options


def _tokens(text: str) -> list[tuple[str, str]]:
    """(kind, text) of each token; the kinds are word, text and sign."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise JaasError(f"character {at + 1} cannot be read: put values in quotes, and close them")
        at = match.end()
        if match.lastgroup is not None:
            value = match[match.lastgroup]
            quoted = match.lastgroup in ("double", "single")
            found.append(
                ("text", re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL))
                if quoted
                else (match.lastgroup, value)
            )
    return found
