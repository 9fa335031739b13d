"""Settings of topics and brokers, with where each value comes from."""

from __future__ import annotations

from starlette.responses import Response

from holdfast_log.clients.admin import Admin, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from holdfast_log.console.pages.page import BadParameter, Visit, address, show, whole

SOURCES = {
    ConfigSource.UNKNOWN: "Not told",
    ConfigSource.DYNAMIC_TOPIC: "Set for this topic",
    ConfigSource.DYNAMIC_BROKER: "Set for this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "Set for all brokers",
    ConfigSource.STATIC_BROKER: "Properties file",
    ConfigSource.DEFAULT: "Default",
}


async def configs_page(visit: Visit) -> Response:
    snapshot = await visit.parts.watch.current()
    resource = _resource(visit)
    find = visit.text("find").strip().lower()
    shows_all = visit.text("all") == "yes"
    entries: list[ConfigEntry] = []
    if resource is not None:
        chosen = resource

        def ask(admin: Admin) -> list[ConfigEntry]:
            return admin.describe_configs([chosen], include_documentation=True).get(chosen, [])

        entries = sorted(await visit.ask_about(ask), key=lambda entry: entry.name)
    shown = [
        entry
        for entry in entries
        if find in entry.name.lower() and (shows_all or find or not entry.is_default)
    ]
    return await show(
        visit,
        "configs.html",
        "configs",
        "Settings" if resource is None else f"Settings of {resource}",
        snapshot=snapshot,
        resource=resource,
        entries=shown,
        total=len(entries),
        find=find,
        shows_all=shows_all,
        sources=SOURCES,
        broker_address=lambda number: address("/configs", broker=number),
        known=[row.name for row in snapshot.topic_rows][:1000],
    )


def _resource(visit: Visit) -> ConfigResource | None:
    topic, broker = visit.text("topic").strip(), visit.text("broker").strip()
    if topic and broker:
        raise BadParameter("Settings are shown of a topic or of a broker, not of both.")
    if topic:
        return ConfigResource(ResourceType.TOPIC, topic)
    if broker:
        return ConfigResource(ResourceType.BROKER, str(whole("broker", broker, 0, high=2**31 - 1)))
    return None
