"""Reads the settings of a command line: a properties file and overrides."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.clients.references import resolved
from holdfast_log.clients.settings import SettingError, Settings, read_properties


def read_settings(path: str, overrides: Sequence[str]) -> Settings:
    """The broker's settings in a file, with `key=value` overrides. References in both are replaced by what
    they refer to (`clients.references`). Raises `SettingError`."""
    try:
        values = read_properties(path)
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from None
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator:
            raise SettingError(f"--override {override} is not allowed: expected key=value")
        values[key.strip()] = value.strip()
    return broker_settings(resolved(values))
