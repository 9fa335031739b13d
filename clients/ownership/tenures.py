"""Several resources of one owner: claimed one after the other, in their order, and kept together."""

from __future__ import annotations

from collections.abc import Iterable

from clients.link import Call, Reply
from clients.ownership.events import OwnershipEvent, Resource, TenureState, split
from clients.ownership.tenure import Tenure, error_of


class Tenures:
    """The resources, in ascending order: two owners that wait for the same ones never wait for each other.

    The next is claimed when the one before is held. All or none: where one is refused, the others are
    released. To be hosted as a `Tenure` is.
    """

    def __init__(self, tenures: Iterable[Tenure]) -> None:
        self.tenures: dict[Resource, Tenure] = {
            tenure.resource: tenure for tenure in sorted(tenures, key=lambda each: split(each.resource))
        }
        if not self.tenures:
            raise ValueError("no resource to own")

    @property
    def is_held(self) -> bool:
        """Whether all are, on the connections that there are."""
        return all(tenure.is_held for tenure in self.tenures.values())

    @property
    def has_ended(self) -> bool:
        """Whether all have."""
        return all(tenure.has_ended for tenure in self.tenures.values())

    @property
    def error(self) -> Exception | None:
        """Why one of them was lost or could not be had: the first that was."""
        ended = (TenureState.LOST, TenureState.REFUSED)
        return next((error_of(each) for each in self.tenures.values() if each.state in ended), None)

    @property
    def last_error(self) -> Exception | None:
        """Why the last attempt for one of them brought nothing, where that may pass."""
        errors = (tenure.last_error for tenure in self.tenures.values() if not tenure.is_held)
        return next((error for error in errors if error is not None), None)

    def calls(self, now_ms: int) -> list[Call]:
        """What to send now."""
        calls: list[Call] = []
        for tenure in self._active():
            calls += tenure.calls(now_ms)
        self._release_if_refused()
        return calls

    def _active(self) -> list[Tenure]:
        """All but those whose turn has not come."""
        active: list[Tenure] = []
        for tenure in self.tenures.values():
            active.append(tenure)
            if tenure.state in (TenureState.CLAIMING, TenureState.QUEUED):
                break
        return active

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Take in a reply; whether it was to one of these calls."""
        if not any(tenure.handle(reply, now_ms) for tenure in self.tenures.values()):
            return False
        self._release_if_refused()
        return True

    def _release_if_refused(self) -> None:
        if any(tenure.state is TenureState.REFUSED for tenure in self.tenures.values()):
            self.release()

    def next_event_ms(self, now_ms: int) -> int | None:
        """When `calls` has something by itself, or events are to be told."""
        if any(tenure.events for tenure in self.tenures.values()):
            return now_ms
        times = [tenure.next_event_ms(now_ms) for tenure in self._active()]
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def release(self) -> None:
        """Let go of all."""
        for tenure in self.tenures.values():
            tenure.release()

    def take_events(self) -> list[OwnershipEvent]:
        """What has happened since the last call."""
        events: list[OwnershipEvent] = []
        for tenure in self.tenures.values():
            events += tenure.events
            tenure.events = []
        return events
