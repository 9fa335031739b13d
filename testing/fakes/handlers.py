"""The broker's own handlers, with parts that a test provides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_type_hints

from twisted.internet.task import Clock

from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.dispatch import AnyHandler
from holdfast_log.broker.wiring.handlers import build_handlers, handler_types


@dataclass(frozen=True)
class AnswerParts:
    """What makes the rows of long answers."""

    answers: LongAnswers


class AnswersAtOnce(LongAnswers):
    """Makes every answer at once: nobody else waits for the broker."""

    def __init__(self) -> None:
        super().__init__(Clock())

    def may_go_on(self, price: int) -> bool:
        return True


def handlers_about(service: type[Any], *parts: object, without: type[Any] | None = None) -> list[AnyHandler]:
    """The handlers that require `service`, but not those that also require `without`. They get what they
    require, by type, from the fields of `parts`, which are dataclasses."""
    types = []
    for each in handler_types():
        required = get_type_hints(each).values()
        if service in required and without not in required:
            types.append(each)
    return build_handlers(types, parts, {})
