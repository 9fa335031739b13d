"""References in properties files to values that are kept elsewhere, such as passwords (KIP-297, KIP-421).

    ssl.key.password=${file:/etc/holdfast/secrets.properties:key.password}
    ssl.key.password=${directory:/run/secrets:key-password}
    ssl.key.password=${env:KEY_PASSWORD}

They are replaced once, when the file is read. Values that come in any other way are taken as they are: those
that clients alter at run time, and properties that an application passes as a mapping. Otherwise a stranger
who may name a setting could read the files of the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from holdfast_log.clients.settings import HiddenText, SettingError, read_properties

_REFERENCE = re.compile(r"\$\{(?P<provider>[A-Za-z][\w.-]*):(?P<rest>[^}]*)\}")
_FILE_BYTES_MAX = 1024 * 1024


class _Unresolved(Exception):
    """Why a reference has no value, and what to do about it."""


def load_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The keys and values of a Java properties file, with values in place of references. Raises OSError if
    that file cannot be read, and `SettingError`."""
    return resolved(read_properties(path))


def resolved(values: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The values of a properties file, with values in place of references.

    A value that had a reference becomes `HiddenText`. Raises `SettingError` for a reference without a value;
    it names the setting and the reference, never a value.
    """
    sources = _Sources(environment)
    return {name: _resolved(name, value, sources) for name, value in values.items()}


def _resolved(name: str, value: str, sources: _Sources) -> str:
    def replacement(found: re.Match[str]) -> str:
        try:
            return sources.value_of(found["provider"], found["rest"])
        except _Unresolved as error:
            raise SettingError(f"{name}={found[0]} is not allowed: {error}") from None

    return HiddenText(_REFERENCE.sub(replacement, value)) if _REFERENCE.search(value) else value


class _Sources:
    """Where values are kept. Each properties file is read once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._files: dict[str, Mapping[str, str]] = {}
        self._providers: dict[str, Callable[[str], str]] = {
            "file": self._of_file,
            "directory": self._of_directory,
            "env": self._of_environment,
        }

    def value_of(self, provider: str, rest: str) -> str:
        """The value for what follows the provider's name. Raises `_Unresolved`."""
        if provider not in self._providers:
            raise _Unresolved(f"{provider} is none of {', '.join(self._providers)}")
        return self._providers[provider](rest)

    def _of_file(self, rest: str) -> str:
        path, key = _parts(rest, "${file:PATH:KEY}")
        if path not in self._files:
            try:
                self._files[path] = read_properties(path)
            except OSError as error:
                raise _Unresolved(f"the file cannot be read: {error.strerror}") from None
            except SettingError:  # Its words may have a part of a secret.
                raise _Unresolved("the file is not a valid properties file") from None
        if key not in self._files[path]:
            raise _Unresolved(f"the file has no key {key}: add it, or name another")
        return self._files[path][key]

    def _of_directory(self, rest: str) -> str:
        path, name = _parts(rest, "${directory:PATH:FILE}")
        if os.sep in name or name in (os.curdir, os.pardir):
            raise _Unresolved("expected the name of a file in the directory itself")
        try:
            with open(os.path.join(path, name), encoding="utf-8") as file:
                text = file.read(_FILE_BYTES_MAX + 1)
        except OSError as error:
            raise _Unresolved(f"the file cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise _Unresolved("the file is no text in UTF-8") from None
        if len(text) > _FILE_BYTES_MAX:
            raise _Unresolved(f"the file has more than {_FILE_BYTES_MAX} characters")
        return text

    def _of_environment(self, name: str) -> str:
        value = self._environment.get(name)
        if value is None:
            raise _Unresolved(f"the environment has no variable {name}: set it where this program is started")
        return value


def _parts(rest: str, form: str) -> tuple[str, str]:
    path, colon, key = rest.partition(":")
    if not (path and colon and key):
        raise _Unresolved(f"expected {form}")
    return path, key
