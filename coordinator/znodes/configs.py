"""/config/…: what was changed while the cluster ran. Values are text; typing them is the reader's."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.znodes.json import BadZnode, decode_json, encode_json
from coordinator.znodes.paths import CONFIG_TYPES


def encode_config(values: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": dict(sorted(values.items()))})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Empty data counts as no values."""
    if not data:
        return {}
    values = decode_json(path, data).get("config")
    if not isinstance(values, dict):
        raise BadZnode(f"{path} holds no config")
    return {str(key): str(value) for key, value in values.items()}


def encode_config_change(kind: str, name: str) -> bytes:
    """Says that `/config/<kind>/<name>` has changed."""
    return encode_json({"version": 2, "entity_path": f"{kind}/{name}"})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """The kind and name of what has changed."""
    value = decode_json(path, data)
    if value.get("version") == 1:
        kind, name = value.get("entity_type"), value.get("entity_name")
    else:
        kind, _, name = str(value.get("entity_path", "")).partition("/")
    if kind not in CONFIG_TYPES or not isinstance(name, str) or not name:
        raise BadZnode(f"{path} does not say what has changed")
    return kind, name
