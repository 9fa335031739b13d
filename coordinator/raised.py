"""The exception of a Failure, in the form in which the module `logging` takes it."""

from __future__ import annotations

from types import TracebackType
from typing import cast

from twisted.python.failure import Failure


def raised(failure: Failure) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """What a log call takes as `exc_info`, so that the traceback stands below the record.

    A failure that has passed through several callbacks has no traceback any more, but still knows the frames.
    """
    error = cast(BaseException, failure.value)
    return type(error), error, cast("TracebackType | None", failure.getTracebackObject())
