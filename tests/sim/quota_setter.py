"""A simulated administrator that changes the quotas of clients (AlterClientQuotas) while they are used."""

from __future__ import annotations

from collections import deque

from holdfast_log.broker.quotas.entities import CLIENT_ID, USER
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    AlteredQuota,
    OpData,
)
from tests.sim.client import RETRY_S, Client, Surroundings
from tests.sim.plan import QuotaChange, QuotasPlan

ANONYMOUS = "ANONYMOUS"
"""The user of every simulated client."""


class QuotaSetter(Client):
    """Makes each change of a plan at its time, through any broker, until a broker says that it is made."""

    def __init__(self, around: Surroundings, name: str, plan: QuotasPlan) -> None:
        super().__init__(around, name)
        self._plan = plan
        self._due: deque[QuotaChange] = deque()
        self._is_asking = False
        self._has_ended = False

    @property
    def is_done(self) -> bool:
        """Whether every change that was due has been made."""
        return not self._due

    def begin(self) -> None:
        super().begin()
        for change in self._plan.changes:
            self.later(change.at_s, self._add, change)

    def end(self) -> None:
        """Set the quotas that stay until the end of the run, and make no other change any more."""
        self.process.run(self._end)

    def _end(self) -> None:
        self._has_ended = True
        self._due.clear()
        self._due.extend(self._plan.last)
        self._ask()

    def _add(self, change: QuotaChange) -> None:
        if not self._has_ended:
            self.world.trace(self.name, str(change))
            self._due.append(change)
            self._ask()

    def _ask(self) -> None:
        if self._is_asking or not self._due:
            return
        self._is_asking = True
        change = self._due[0]
        entity = [AlteredEntity(entity_type=CLIENT_ID, entity_name=change.client)]
        if change.is_of_user:
            entity.append(AlteredEntity(entity_type=USER, entity_name=ANONYMOUS))
        operation = OpData(key=change.key, value=change.limit or 0.0, remove=change.limit is None)
        request = AlterClientQuotasRequest(
            entries=[AlteredQuota(entity=entity, ops=[operation])], validate_only=False
        )
        self.send(self.anyone(), request).addCallbacks(
            lambda response: self._answered(change, response), lambda failure: self._again()
        )

    def _answered(self, change: QuotaChange, response: AlterClientQuotasResponse) -> None:
        self.history.operations += 1
        (row,) = response.entries
        if row.error_code != ErrorCode.NONE:
            code = ErrorCode(row.error_code).name
            self.history.violation(f"{self.name} got {code} for {change}: {row.error_message}")
        if self._due and self._due[0] is change:
            self._due.popleft()
        self._is_asking = False
        self._ask()

    def _again(self) -> None:
        self.refresh()
        self.later(RETRY_S, self._ask_again)

    def _ask_again(self) -> None:
        self._is_asking = False
        self._ask()
