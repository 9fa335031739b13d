"""Whose turn it is: which log that can be compacted gets the next pass, and which one has to rest first.

Any client can create topics whose logs are always dirty, always due, or never compacted with success. So the
dirtiest log comes first only among logs that have waited about as long. How long is counted by topic: a topic
with a thousand partitions gets no more turns than one with a single partition, while both have work. Internal
topics have every second turn, because what they hold is needed by all, and everybody's offsets are in them.

A log whose pass has failed or has removed next to nothing rests, twice as long after each further one: such
passes take the time of others for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast_log.broker.cleaning.plan import CleaningPlan
from holdfast_log.broker.log.log import Log

_PATIENCE_S = 60.0
"""A log that has waited so much longer than another comes before it, even if the other is wholly dirty; after
twice this time even before one that is due."""
_RESTS_MAX = 40
"""Longest rest, in units of log.cleaner.backoff.ms."""
_GAIN_MIN = 0.01
"""Share of the bytes read that a pass must remove to be worth its time."""


class CleaningTurns:
    """Chooses among plans. `is_internal` says of a topic whether the brokers themselves write it. All times
    are in seconds of one clock."""

    def __init__(self, is_internal: Callable[[str], bool]) -> None:
        self._is_internal = is_internal
        self._is_internals_turn = True
        self._waiting: dict[Log, float] = {}
        """Logs that can be compacted → since when."""
        self._served: dict[str, float] = {}
        """Topics with a pass under way, or with a log that waits → when their last pass began or ended."""

    def choose(self, plans: Iterable[CleaningPlan], now_s: float) -> CleaningPlan | None:
        """The plan whose turn it is, of one for each log that can be compacted; None if there is none."""
        of_topic: dict[str, list[CleaningPlan]] = {}
        waiting: dict[Log, float] = {}
        for plan in plans:
            of_topic.setdefault(plan.log.topic_partition.topic, []).append(plan)
            waiting[plan.log] = self._waiting.get(plan.log, now_s)
        self._waiting = waiting
        internal = {topic: plans for topic, plans in of_topic.items() if self._is_internal(topic)}
        others = {topic: plans for topic, plans in of_topic.items() if topic not in internal}
        first, second = (internal, others) if self._is_internals_turn else (others, internal)
        candidates = first or second
        if not candidates:
            return None

        def claim(plan: CleaningPlan, since_s: float) -> float:
            return (now_s - since_s) / _PATIENCE_S + plan.dirty_ratio + plan.is_due

        def claim_of_topic(topic: str) -> float:
            served_s = self._served.get(topic, 0.0)
            return max(claim(plan, max(waiting[plan.log], served_s)) for plan in candidates[topic])

        topic = max(candidates, key=claim_of_topic)
        return max(candidates[topic], key=lambda plan: claim(plan, waiting[plan.log]))

    def begin(self, log: Log, now_s: float) -> None:
        """Note that a pass over a log begins."""
        topic = log.topic_partition.topic
        self._is_internals_turn = not self._is_internal(topic)
        self._waiting.pop(log, None)
        self._served[topic] = now_s

    def end(self, log: Log, now_s: float, busy: Iterable[Log]) -> None:
        """Note that a pass over a log has ended; `busy` are the logs whose passes are under way."""
        topic = log.topic_partition.topic
        present = {each.topic_partition.topic for each in (log, *self._waiting, *busy)}
        self._served = {each: at_s for each, at_s in self._served.items() if each in present}
        self._served[topic] = now_s


class Rests:
    """Which logs are left alone for a while. `seconds` returns the time of a clock."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._vain: dict[Log, int] = {}
        """Number of passes over a log, one after the other, that have failed or were not worth their time."""
        self._ends: dict[Log, float] = {}
        """When the rest of a log ends."""

    def is_resting(self, log: Log) -> bool:
        """Whether no pass over a log may begin yet."""
        return self._ends.get(log, 0.0) > self._seconds()

    def forget_others(self, logs: Iterable[Log]) -> None:
        """Forget all logs but these, which exist."""
        if self._vain:
            self._vain = {log: self._vain[log] for log in logs if log in self._vain}
            self._ends = {log: end_s for log, end_s in self._ends.items() if log in self._vain}

    def failed(self, log: Log, backoff_s: float) -> None:
        """Note a pass that has failed."""
        count = self._vain[log] = self._vain.get(log, 0) + 1
        self._ends[log] = self._seconds() + backoff_s * min(_RESTS_MAX, 1 << min(count - 1, 10))

    def aborted(self, log: Log, backoff_s: float) -> None:
        """Note a pass that has ended early because its log has changed. That says nothing about the next."""
        self._vain.setdefault(log, 0)
        self._ends[log] = self._seconds() + backoff_s

    def completed(self, log: Log, bytes_before: int, bytes_after: int, backoff_s: float) -> None:
        """Note a complete pass that has read so many bytes of segments, and left so many."""
        if bytes_before - bytes_after < _GAIN_MIN * bytes_before:
            self.failed(log, backoff_s)
        else:
            self._vain.pop(log, None)
            self._ends.pop(log, None)
