"""The first page: is the cluster well, who are its brokers, how much is written."""

from __future__ import annotations

from starlette.responses import Response

from holdfast_log.console.pages.page import ROWS, Visit, show, troubles


async def cluster_page(visit: Visit) -> Response:
    snapshot = await visit.parts.watch.current()
    rows = snapshot.topic_rows
    return await show(
        visit,
        "cluster.html",
        "cluster",
        "Cluster",
        snapshot=snapshot,
        troubles=troubles(snapshot),
        topics=len(rows),
        partitions=sum(row.partitions for row in rows),
        under_replicated=sum(row.under_replicated for row in rows),
        offline=sum(row.offline for row in rows),
        moves_shown=ROWS,
        owned=sum(each.owner_id is not None for each in snapshot.owners.value or ()),
        busiest=sorted((row for row in rows if row.rate), key=lambda row: (-(row.rate or 0.0), row.name))[:5],
    )
