"""Where owners put their grants, for the clients of a check that act for them or misuse them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_log.clients.ownership.claim_requests import ClaimDialect
from holdfast_log.clients.ownership.events import OwnedResource

_KEPT = 20


@dataclass(frozen=True, slots=True)
class Notice:
    """A grant of `client` that was confirmed by broker `node`.

    `dialect` has the owner's id and its secret: those who act for the owner use the secret, those who pretend
    to be the owner must not know it.
    """

    client: str
    node: int
    dialect: ClaimDialect
    resource: OwnedResource
    generation: int
    incarnation: int


class Noticeboard:
    """The last grants of each resource, by its label, in the order of their last confirmations."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notices: dict[str, list[Notice]] = {}

    def post(self, label: str, notice: Notice) -> None:
        with self._lock:
            notices = self._notices.setdefault(label, [])
            notices[:] = [each for each in notices if each.incarnation != notice.incarnation]
            notices.append(notice)
            del notices[:-_KEPT]

    def notices(self, label: str) -> Sequence[Notice]:
        """The grants of a resource, the one that was confirmed last at the end."""
        with self._lock:
            return tuple(self._notices.get(label, ()))

    def labels(self) -> Sequence[str]:
        with self._lock:
            return tuple(sorted(self._notices))
