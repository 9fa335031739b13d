"""Every cell of the table of a SASL connection."""

from __future__ import annotations

import pytest

from holdfast_log.broker.security.sasl.machine import TABLE, SaslAction, SaslEvent, SaslMachine, SaslState

S, E, A = SaslState, SaslEvent, SaslAction
LETS_REQUESTS_THROUGH = {(S.AUTHENTICATED, E.REQUEST), (S.AUTHENTICATED, E.VERSIONS), (S.NEW, E.VERSIONS)}
WAITING = (S.TOKENS, S.RAW_TOKENS, S.RENEWING)
EXPECTED = {
    S.NEW: "HANDLE BEGIN BEGIN FAIL CLOSE CLOSE CLOSE CLOSE CLOSE CLOSE FAIL CLOSE",
    S.TOKENS: "CLOSE CLOSE CLOSE CLOSE CLOSE EVALUATE CLOSE CLOSE CHALLENGE ADMIT FAIL CLOSE",
    S.RAW_TOKENS: "CLOSE CLOSE CLOSE CLOSE CLOSE EVALUATE CLOSE CLOSE CHALLENGE ADMIT FAIL CLOSE",
    S.AUTHENTICATED: ("HANDLE BEGIN DECLINE FAIL DECLINE DECLINE HANDLE CLOSE CLOSE CLOSE FAIL NOTHING"),
    S.RENEWING: "CLOSE CLOSE CLOSE CLOSE CLOSE EVALUATE CLOSE CLOSE CHALLENGE ADMIT FAIL CLOSE",
    S.FAILED: " ".join(["NOTHING"] * 12),
}
CELLS = [(state, event) for state in S for event in E]


@pytest.mark.parametrize(("state", "event"), CELLS)
def test_every_cell(state: SaslState, event: SaslEvent) -> None:
    machine = SaslMachine()
    machine.state = state

    action = machine.on(event)

    assert action is A[EXPECTED[state].split()[list(E).index(event)]]
    assert (action is A.HANDLE) == ((state, event) in LETS_REQUESTS_THROUGH)
    if action in (A.CLOSE, A.FAIL):
        assert machine.state is S.FAILED
    elif action is A.ADMIT:
        assert machine.state is S.AUTHENTICATED and state in WAITING
    elif action is A.BEGIN:
        assert machine.state in WAITING
    else:
        assert machine.state is state


def test_the_table_has_every_cell() -> None:
    assert set(TABLE) == set(S) and all(set(row) == set(E) for row in TABLE.values())


def test_nothing_leads_back_from_a_failure() -> None:
    assert {cell.next for cell in TABLE[S.FAILED].values()} == {S.FAILED}
