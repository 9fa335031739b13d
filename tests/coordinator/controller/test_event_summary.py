"""The log line that sums up how the controller handled a change of live brokers."""

from __future__ import annotations

import logging

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.coordinator.controller.event_summary import EventSummary
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest

LEADERS = LeaderAndIsrRequest(
    type=0, controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[], live_leaders=[]
)
METADATA = UpdateMetadataRequest(
    controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[], live_brokers=[]
)


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_the_summary_is_logged_when_the_last_broker_has_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    summary = EventSummary(clock)
    clock.advance(0.2)
    summary.count_states(200)
    clock.advance(0.05)
    summary.count_states(7)
    answers: list[Deferred[bool]] = [Deferred(), Deferred(), Deferred()]
    summary.count_request(LEADERS, answers[0])
    summary.count_request(LEADERS, answers[1])
    summary.count_request(METADATA, answers[2])
    answers[0].callback(True)
    summary.finish([1, 3])
    clock.advance(0.5)
    answers[1].callback(True)
    assert caplog.messages == []
    answers[2].callback(False)

    assert caplog.messages == [
        "brokers are now [1, 3]: 207 partition states written within 250 ms, "
        "2 LeaderAndIsr, 1 UpdateMetadata answered within 750 ms"
    ]


def test_the_summary_passes_on_the_result_of_a_request() -> None:
    summary = EventSummary(Clock())
    answer: Deferred[bool] = Deferred()
    summary.count_request(LEADERS, answer)
    seen: list[bool] = []
    answer.addCallback(seen.append)
    answer.callback(False)

    assert seen == [False]


def test_an_event_without_requests_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    EventSummary(Clock()).finish([2])

    assert caplog.messages == [
        "brokers are now [2]: 0 partition states written within 0 ms, no requests answered within 0 ms"
    ]
