"""Orders of the controller that have become outdated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import fail, succeed

from holdfast_log.broker.handlers.leader_and_isr import LeaderAndIsrHandler
from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.models.orders import leader_and_isr


@pytest.mark.parametrize("broker_epoch", [6, 7])
def test_an_assignment_for_a_registration_that_has_ended_changes_nothing(broker_epoch: int) -> None:
    """The session may end before the request arrives, or while it waits for the settings of a new topic."""
    orders = ControllerOrders(
        cast(Any, None),
        cast(Any, SimpleNamespace(has=lambda topic: False, resume=lambda: pytest.fail("it was applied"))),
        cast(Any, None),
        cast(Any, SimpleNamespace(refresh=lambda kind, name: fail(SessionExpired(name)))),
        lambda request: succeed(None),
        SimpleNamespace(broker_epoch=7),
        cast(Any, None),
        cast(Any, None),
        lambda broker_epoch: None,
    )
    orders.begin()
    request = leader_and_isr(broker_epoch=broker_epoch)
    errors: list[BrokerError] = []
    answer = LeaderAndIsrHandler(orders).handle(RequestContext(7, "", None), request)
    answer.addErrback(lambda failure: errors.append(failure.value))
    assert [error.code for error in errors] == [ErrorCode.STALE_BROKER_EPOCH]
