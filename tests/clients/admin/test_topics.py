"""Topics are created, grown and deleted although the controller's quota refuses some of them (KIP-599)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode, QuotaExceededError, TopicExistsError
from holdfast_log.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from holdfast_log.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast_log.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

TIMEOUT_MS = 20_000
THROTTLE_MS = 3_000
OVER = ErrorCode.THROTTLING_QUOTA_EXCEEDED
APIS = (CreateTopicsRequest, DeleteTopicsRequest, CreatePartitionsRequest)


class Controller:
    """A broker that accepts `at_once` topics of each request, and refuses the rest for `throttle_ms`."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        (self.broker,) = self.cluster.brokers.values()
        self.broker.versions |= {api.api.key: (api.api.min_version, api.api.max_version) for api in APIS}
        self.broker.__dict__["_respond"] = self._respond
        self._others = type(self.broker)._respond
        self.at_once = 1
        self.throttle_ms = THROTTLE_MS
        self.existing: set[str] = set()
        self.asked: list[tuple[int, list[str]]] = []
        """The time in ms and the topics of each request."""
        self.admin = Admin(
            {"bootstrap.servers": self.cluster.bootstrap, "default.api.timeout.ms": TIMEOUT_MS},
            network=self.cluster.network(),
        )

    def _codes(self, names: list[str]) -> tuple[dict[str, ErrorCode], int]:
        self.asked.append((self.cluster.now_ms(), names))
        fresh = [name for name in names if name not in self.existing]
        codes = dict.fromkeys(names, ErrorCode.TOPIC_ALREADY_EXISTS) | dict.fromkeys(fresh, ErrorCode.NONE)
        over = fresh[self.at_once :]
        return codes | dict.fromkeys(over, OVER), self.throttle_ms if over else 0

    def _respond(
        self, request: Request[Any], error: ErrorCode, channel: Any, version: int
    ) -> Response | None:
        match request:
            case CreateTopicsRequest():
                codes, throttle_ms = self._codes([topic.name for topic in request.topics])
                return CreateTopicsResponse(
                    throttle_time_ms=throttle_ms,
                    topics=[
                        CreatableTopicResult(name=name, error_code=code, error_message=None)
                        for name, code in codes.items()
                    ],
                )
            case DeleteTopicsRequest():
                codes, throttle_ms = self._codes([topic.name or "" for topic in request.topics])
                return DeleteTopicsResponse(
                    throttle_time_ms=throttle_ms,
                    responses=[
                        DeletableTopicResult(name=name, error_code=code) for name, code in codes.items()
                    ],
                )
            case CreatePartitionsRequest():
                codes, throttle_ms = self._codes([topic.name for topic in request.topics])
                return CreatePartitionsResponse(
                    throttle_time_ms=throttle_ms,
                    results=[
                        CreatePartitionsTopicResult(name=name, error_code=code, error_message=None)
                        for name, code in codes.items()
                    ],
                )
        return self._others(self.broker, request, error, channel, version)


@pytest.fixture
def controller() -> Iterator[Controller]:
    controller = Controller()
    with controller.admin:
        yield controller


def create(admin: Admin, *names: str, **options: bool) -> None:
    admin.create_topics([NewTopic(name, 3, 1) for name in names], **options)


def delete(admin: Admin, *names: str, **options: bool) -> None:
    admin.delete_topics(names, **options)


def grow(admin: Admin, *names: str, **options: bool) -> None:
    admin.create_partitions(dict.fromkeys(names, 7), **options)


every_change = pytest.mark.parametrize("change", [create, delete, grow])
Change = Callable[..., None]


@every_change
def test_what_the_quota_refuses_is_asked_for_again_after_the_throttle_time(
    controller: Controller, change: Change
) -> None:
    change(controller.admin, "a", "b", "c")
    assert [names for _, names in controller.asked] == [["a", "b", "c"], ["b", "c"], ["c"]]
    first_ms, second_ms, third_ms = (at_ms for at_ms, _ in controller.asked)
    assert second_ms - first_ms >= THROTTLE_MS and third_ms - second_ms >= THROTTLE_MS


@every_change
def test_without_retry_on_quota_violation_the_refusal_is_raised_at_once(
    controller: Controller, change: Change
) -> None:
    with pytest.raises(QuotaExceededError, match="topic b"):
        change(controller.admin, "a", "b", retry_on_quota_violation=False)
    assert len(controller.asked) == 1


@every_change
def test_a_quota_that_stays_used_up_is_reported_within_the_api_timeout(
    controller: Controller, change: Change
) -> None:
    controller.at_once = 0
    began_ms = controller.cluster.now_ms()
    with pytest.raises(QuotaExceededError, match="topic a"):
        change(controller.admin, "a")
    assert len(controller.asked) == TIMEOUT_MS // THROTTLE_MS + 1
    assert controller.cluster.now_ms() - began_ms <= TIMEOUT_MS


def test_a_throttle_time_beyond_the_api_timeout_is_not_waited_for(controller: Controller) -> None:
    controller.throttle_ms = TIMEOUT_MS + 1
    began_ms = controller.cluster.now_ms()
    with pytest.raises(QuotaExceededError):
        create(controller.admin, "a", "b")
    assert controller.cluster.now_ms() - began_ms < THROTTLE_MS


def test_another_error_is_raised_once_the_other_topics_are_created(controller: Controller) -> None:
    controller.existing = {"a"}
    with pytest.raises(TopicExistsError, match="topic a"):
        create(controller.admin, "a", "b", "c")
    assert [names for _, names in controller.asked] == [["a", "b", "c"], ["c"]]
