"""/holdfast/leases/ID: a broker renews its lease by writing this znode. Holdfast's own."""

from __future__ import annotations

LEASES = "/holdfast/leases"


def lease_path(broker_id: int) -> str:
    return f"{LEASES}/{broker_id}"
