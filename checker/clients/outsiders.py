"""Clients that write to a partition which somebody owns: strangers, processes with a fence, and impostors."""

from __future__ import annotations

import random

from holdfast_log.checker.calls import NO_GRANT, NO_OFFSET, Action, AppendCall, Outcome, OwnershipCall
from holdfast_log.checker.clients.crew import CheckSettings, new_value
from holdfast_log.checker.clients.raw_appends import RawAppender, batch_of, outcome_of
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.ownership.claim_requests import (
    OwnDialect,
    RequestKind,
    ResourceRequest,
    draw_secret,
    request_for,
    standings_in,
)
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

_TIMEOUT_MS = 2_000
_PRESENT_SHARE = 0.6
"""Share of a process's writes that use the newest fence; the others use one that has probably ended."""
_FORGED_SHARE = 0.1
"""Share of a process's writes whose fence has another secret than the claim."""


class StrangeWriter:
    """Writes to a partition like a stock client that knows nothing of owners."""

    def __init__(self, name: str, settings: CheckSettings, place: TopicPartition) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._appender = RawAppender(name, settings, place)

    def step(self) -> None:
        if not self._appender.find_leader():
            return
        value = new_value(self.name)
        asked_s = self._recorder.now_s()
        (answer,) = self._appender.append_all([(batch_of([value]), {})])
        answered_s = self._recorder.now_s()
        outcome = outcome_of(answer)
        offset = NO_OFFSET if isinstance(answer, Exception) else answer.base_offset
        place = self._appender.place
        self._recorder.add(AppendCall(self.name, *place, (value,), asked_s, answered_s, outcome, offset))
        self._recorder.add(OwnershipCall(self.name, str(place), Action.INTRUDE, asked_s, answered_s, outcome))

    def close(self) -> None:
        self._appender.close()


class FencedWriter:
    """Writes for the owners of a partition, with the fences of their grants, on a connection of its own. It
    also uses fences of grants that have ended, and forges secrets."""

    def __init__(self, name: str, settings: CheckSettings, place: TopicPartition) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._board = settings.board
        self._appender = RawAppender(name, settings, place)

    def step(self) -> None:
        place = self._appender.place
        notices = self._board.notices(str(place))
        if not notices or not self._appender.find_leader():
            return
        notice = notices[-1] if random.random() < _PRESENT_SHARE else random.choice(notices)
        is_forged = random.random() < _FORGED_SHARE
        value = new_value(self.name)
        secret = draw_secret() if is_forged else notice.dialect.secret
        fence = {"owner_token": notice.incarnation, "owner_secret": secret}
        asked_s = self._recorder.now_s()
        (answer,) = self._appender.append_all([(batch_of([value]), fence)])
        answered_s = self._recorder.now_s()
        outcome = outcome_of(answer)
        code = ErrorCode.NONE if isinstance(answer, Exception) else ErrorCode(answer.error_code)
        offset = NO_OFFSET if isinstance(answer, Exception) else answer.base_offset
        grant = notice.incarnation
        self._recorder.add(
            AppendCall(self.name, *place, (value,), asked_s, answered_s, outcome, offset, grant=grant)
        )
        is_ended = code is ErrorCode.PRODUCER_FENCED and not is_forged
        if outcome is Outcome.DONE or is_ended:
            client = self.name if is_forged else notice.client
            self._recorder.add(
                OwnershipCall(client, str(place), Action.WRITE, asked_s, answered_s, outcome, grant)
            )

    def close(self) -> None:
        self._appender.close()


class Impostor:
    """Resumes the grants of others: it knows all that is public about them, and not their secrets."""

    def __init__(self, name: str, settings: CheckSettings) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._board = settings.board
        self._session_ms = settings.session_ms
        self._connection = Connection(settings.bootstrap, {**settings.properties(), "client.id": name})

    def step(self) -> None:
        labels = self._board.labels()
        if not labels:
            return
        label = random.choice(labels)
        notice = self._board.notices(label)[-1]
        theirs = notice.dialect
        if not isinstance(theirs, OwnDialect) or notice.node not in self._connection.metadata.nodes:
            self._connection.metadata.renew()
            self._connection.poll(_TIMEOUT_MS)
            return
        mine = OwnDialect(theirs.group, theirs.owner_id, self._session_ms, theirs.access)
        wanted = ResourceRequest(RequestKind.RESUME, notice.resource, notice.generation, notice.incarnation)
        asked_s = self._recorder.now_s()
        response = self._connection.ask(notice.node, request_for(mine, [wanted], _TIMEOUT_MS))
        (standing,) = standings_in(response, [notice.resource])
        if standing.error_code == ErrorCode.NONE:
            self._recorder.add(
                OwnershipCall(
                    self.name,
                    label,
                    Action.RESUME,
                    asked_s,
                    self._recorder.now_s(),
                    Outcome.DONE,
                    standing.incarnation if standing.incarnation != NO_GRANT else notice.incarnation,
                )
            )

    def close(self) -> None:
        self._connection.close()
