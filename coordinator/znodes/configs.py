"""/config/<type>/<name>: dynamic config of topics, clients, users, brokers and addresses; /config/changes:
notifications of changes. Values are text; readers parse them."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_log.coordinator.znodes.json_values import BadZnode, decode_json, encode_json

CONFIG = "/config"
CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips")
NESTED = {"users": "clients"}
"""By kind, the folder below an entity that holds further ones: /config/users/<user>/clients/<client id>."""
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"


def config_path(kind: str, name: str) -> str:
    """`kind` is one of `CONFIG_TYPES`; `name` is as Kafka writes it: `<default>` for the default entity, and
    `<user>/clients/<client id>` for the client id of a user."""
    return f"{CONFIG}/{kind}/{name}"


def config_parents(kind: str, name: str) -> list[str]:
    """The znodes between /config/<kind> and the entity's, the topmost first."""
    parts = name.split("/")[:-1]
    return [config_path(kind, "/".join(parts[: count + 1])) for count in range(len(parts))]


def encode_config(values: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": dict(sorted(values.items()))})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Decode a config; empty data holds no values. Raises `BadZnode`."""
    if not data:
        return {}
    values = decode_json(path, data).get("config")
    if not isinstance(values, dict):
        raise BadZnode(f"{path} does not hold a config")
    return {str(key): str(value) for key, value in values.items()}


def encode_config_change(kind: str, name: str) -> bytes:
    """Encode the notification that `/config/<kind>/<name>` has changed."""
    return encode_json({"version": 2, "entity_path": f"{kind}/{name}"})


def decode_config_change(path: str, data: bytes) -> tuple[str, str]:
    """The (kind, name) of the changed config. Raises `BadZnode`."""
    value = decode_json(path, data)
    if value.get("version") == 1:
        kind, name = value.get("entity_type"), value.get("entity_name")
    else:
        kind, _, name = str(value.get("entity_path", "")).partition("/")
    if kind not in CONFIG_TYPES or not isinstance(name, str) or not name:
        raise BadZnode(f"{path} does not name a changed config")
    return kind, name
