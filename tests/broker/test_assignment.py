"""Orders of the controller that have become outdated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import fail, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.handlers.leader_and_isr import LeaderAndIsrHandler
from holdfast_log.broker.handlers.stop_replica import StopReplicaHandler
from holdfast_log.broker.handlers.update_metadata import UpdateMetadataHandler
from holdfast_log.broker.handlers.yield_leadership import YieldLeadershipHandler
from holdfast_log.broker.orders import controller_orders
from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest
from holdfast_log.protocol.messages.yield_leadership import YieldLeadershipRequest
from tests.broker.test_reference_cycles import assert_no_cycles
from tests.models.orders import leader_and_isr, update_metadata


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


def dispatched(
    registration: SimpleNamespace, controller_epoch: int, *, knows_settings: bool = True
) -> Callable[[Request[Any]], Any]:
    """A broker that hears from its controller. Returns what gives it an order and returns the answer."""
    replaced = SimpleNamespace(controller_epoch=controller_epoch, knows_partitions_of=lambda request: True)
    orders = ControllerOrders(
        cast(Any, replaced),
        cast(Any, SimpleNamespace(has=lambda topic: knows_settings)),
        cast(Any, replaced),
        cast(Any, SimpleNamespace(refresh=lambda kind, name: fail(SessionExpired(name)))),
        lambda request: succeed(None),
        registration,
        cast(Any, SimpleNamespace(after_metadata=lambda request: None)),
        cast(Any, None),
        lambda broker_epoch: None,
    )
    orders.begin()
    dispatcher = Dispatcher(RepeatedLog(Clock()))
    dispatcher.add([handler(orders) for handler in _HANDLERS])

    def give(request: Request[Any]) -> Any:
        answers: list[Any] = []
        dispatcher.call_local(request).addCallback(answers.append)
        return answers.pop()

    return give


_HANDLERS: tuple[Callable[[ControllerOrders], Handler[Any, Any]], ...] = (
    LeaderAndIsrHandler,
    StopReplicaHandler,
    UpdateMetadataHandler,
    YieldLeadershipHandler,
)


@pytest.mark.parametrize(
    "request_of",
    [
        leader_and_isr,
        update_metadata,
        partial(StopReplicaRequest, controller_id=1, controller_epoch=1, topic_states=[]),
        partial(YieldLeadershipRequest, controller_id=1, controller_epoch=1, number=1, topics=[]),
    ],
)
def test_an_order_for_a_registration_that_has_ended_leaves_no_cycle(
    request_of: Callable[..., Request[Any]],
) -> None:
    give = dispatched(SimpleNamespace(broker_epoch=7), 1)
    request = request_of(broker_epoch=6)

    def act() -> None:
        assert give(request).error_code == ErrorCode.STALE_BROKER_EPOCH

    assert_no_cycles(act)


@pytest.mark.parametrize(
    "order",
    [
        update_metadata(controller_epoch=1, broker_epoch=7),
        YieldLeadershipRequest(controller_id=1, controller_epoch=1, broker_epoch=7, number=1, topics=[]),
    ],
)
def test_an_order_of_a_controller_that_was_replaced_leaves_no_cycle(order: Request[Any]) -> None:
    give = dispatched(SimpleNamespace(broker_epoch=7), 2)

    def act() -> None:
        assert give(order).error_code == ErrorCode.STALE_CONTROLLER_EPOCH

    assert_no_cycles(act)


def test_a_session_that_ends_while_settings_are_read_leaves_no_cycle() -> None:
    give = dispatched(SimpleNamespace(broker_epoch=7), 1, knows_settings=False)
    request = leader_and_isr(broker_epoch=7)

    def act() -> None:
        assert give(request).error_code == ErrorCode.STALE_BROKER_EPOCH

    assert_no_cycles(act)


def test_errors_that_are_raised_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_orders, "refusable", lambda act, *arguments: act(*arguments))
    with pytest.raises(AssertionError, match="left cycles"):
        test_an_order_for_a_registration_that_has_ended_leaves_no_cycle(leader_and_isr)
