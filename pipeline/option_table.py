"""Reads the options that Spark passes to a data source, by a table of rows.

Spark passes option names in lower case. Keys that begin with `CLIENT_PREFIX` are properties of the consumer
or the producer, which checks them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast_log.clients.settings import Setting, SettingError, Settings, closest_name

CLIENT_PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"


class OptionError(ValueError):
    """An option is unknown, missing, contradicts another, or has a value that is not allowed."""


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The options that `rows` allow. `client` is whose properties may be given: "consumer" or "producer".

    `ignored` are names in lower case of options that Spark itself reads, and hands on.
    """

    rows: tuple[Setting, ...]
    client: str
    ignored: Collection[str] = ()

    def settings(self, given: Mapping[str, str]) -> Settings:
        """The values of all rows. Raises `OptionError` for an unknown option or a value that is not
        allowed."""
        canonical = {row.name.lower(): row.name for row in self.rows}
        values: dict[str, str] = {}
        for key, value in given.items():
            lower = key.lower()
            if lower.startswith(CLIENT_PREFIX) or lower in self.ignored:
                continue
            if lower not in canonical:
                raise OptionError(self._unknown(key, canonical))
            values[canonical[lower]] = value
        try:
            return Settings(self.rows, values)
        except SettingError as error:
            raise OptionError(str(error)) from None

    def _unknown(self, key: str, canonical: Mapping[str, str]) -> str:
        if key.lower() == BOOTSTRAP.removeprefix(CLIENT_PREFIX):
            closest: str | None = BOOTSTRAP
        else:
            closest = canonical.get(closest_name(key.lower(), canonical) or "")
        meant = f"did you mean {closest}?" if closest else f"the options are {', '.join(canonical.values())}"
        prefixed = f'properties of the {self.client} need the prefix "{CLIENT_PREFIX}"'
        return f"unknown option {key}: {meant} ({prefixed})"


def client_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The properties of the client, without their prefix. Raises `OptionError` without addresses of
    brokers."""
    client = {
        key.lower().removeprefix(CLIENT_PREFIX): value
        for key, value in given.items()
        if key.lower().startswith(CLIENT_PREFIX)
    }
    if not client.get("bootstrap.servers", "").strip():
        raise OptionError(f'{BOOTSTRAP} is missing: .option("{BOOTSTRAP}", "host:port")')
    return client
