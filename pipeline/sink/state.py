"""What the cluster remembers of a query's writes, and what follows from it for a task or a commit.

One record for each query (or job key) says which run of the query writes, which micro-batch was committed
last, and for each topic from which offsets on chunks of the next micro-batch can be. It also fixes the number
of partitions by which keys are mapped, so that a retry maps them as the first attempt did. Records change by
compare-and-set only (`pipeline.sink.store`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from holdfast_log.pipeline.sink.line import LineCounts, SinkError

DEPOSED_MAX = 64
"""How many former runs are remembered, to refuse them. A query that is restarted more often while a task of
its first run still lives could be taken over by that task; the log would still have each row once."""
NO_BATCH = -1
_VERSION = 1


def job_record_name(job_key: str) -> str:
    """The name under which the record of a batch write with this key is stored, among those of queries."""
    return f"job {job_key}"


class QueryTakenOverError(SinkError):
    """Another run of the same query, or of the same job, has begun to write since."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a query: from its start to its stop. `host` is the machine of a task of the run, `since_ms`
    when the run began to write, in ms since 1970."""

    id: str
    host: str = ""
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class TopicState:
    """`id` is the topic's id as hexadecimal digits. `count` is the number of partitions over which keys are
    distributed. `starts[p]` is an offset of partition p before which no chunk of the next micro-batch is."""

    id: str
    count: int
    starts: tuple[int, ...]

    def start(self, partition: int) -> int:
        """Where to look for chunks from; 0 for a partition that was added later."""
        return self.starts[partition] if partition < len(self.starts) else 0


@dataclass(frozen=True, slots=True)
class QueryState:
    """The record of a query. `batch` is the last committed micro-batch; `totals` counts since the first."""

    query: str
    run: Run
    batch: int = NO_BATCH
    deposed: tuple[str, ...] = ()
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    totals: LineCounts = field(default_factory=LineCounts)

    def encode(self) -> bytes:
        """The record's value: JSON."""
        return json.dumps({"version": _VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> QueryState:
        """The reverse of `encode`. Raises SinkError for a value of another version."""
        found = json.loads(value)
        if found.pop("version", None) != _VERSION:
            raise SinkError(
                f"the record of query {found.get('query')} was written by another version of Holdfast: "
                "update the Holdfast of this job"
            )
        topics = {
            name: TopicState(row["id"], row["count"], tuple(row["starts"]))
            for name, row in found["topics"].items()
        }
        return cls(
            found["query"],
            Run(**found["run"]),
            found["batch"],
            tuple(found["deposed"]),
            topics,
            LineCounts(**found["totals"]),
        )


@dataclass(frozen=True, slots=True)
class TaskAdmission:
    """What a task may do. `state` is to be stored if `is_new`; with `is_committed`, there is nothing to
    write."""

    state: QueryState
    is_new: bool = False
    is_committed: bool = False


def admit(state: QueryState | None, query: str, batch: int, run: Run) -> TaskAdmission:
    """Whether a task of this run and micro-batch may write. A run that is not known takes the query over.

    Raises QueryTakenOverError, which names the run that has taken over.
    """
    if state is None:
        return TaskAdmission(QueryState(query, run), is_new=True)
    check_run(state, run.id)
    if batch <= state.batch:
        return TaskAdmission(state, is_committed=True)
    if state.run.id == run.id:
        return TaskAdmission(state)
    deposed = (*state.deposed, state.run.id)[-DEPOSED_MAX:]
    return TaskAdmission(replace(state, run=run, deposed=deposed), is_new=True)


def check_run(state: QueryState, run_id: str) -> None:
    """Raise QueryTakenOverError if another run has taken over from this one."""
    if run_id in state.deposed:
        present = state.run
        raise QueryTakenOverError(
            f"{state.query}: run {run_id} may not write any more: run {present.id} on host {present.host} "
            f"has taken over (it began to write at {present.since_ms} ms since 1970). Only one run of a "
            "query can write: stop one of the two, or give each its own checkpoint (or jobKey)"
        )


def with_topic(state: QueryState, name: str, topic: TopicState) -> QueryState:
    """The state with a topic that it did not have, or had under another id."""
    return replace(state, topics={**state.topics, name: topic})


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task has done: the message that it sends to the driver. `ends` are by topic and partition."""

    query: str
    batch: int
    run_id: str
    counts: LineCounts
    ends: Mapping[tuple[str, int], int]
    is_committed: bool = False


def committed(
    state: QueryState,
    batch: int,
    reports: Sequence[TaskReport],
    counts: Mapping[str, int],
    *,
    is_last: bool = False,
) -> QueryState | None:
    """The state after the commit of a micro-batch; None if nothing changes.

    `counts` are the present numbers of partitions of topics. With `is_last` no micro-batch follows: the
    record gets small, and stays, so that late tasks are refused. Raises QueryTakenOverError.
    """
    for report in reports:
        check_run(state, report.run_id)
    if batch <= state.batch or all(report.is_committed for report in reports):
        return None
    topics = {} if is_last else dict(state.topics)
    for name, topic in topics.items():
        count = max(counts.get(name, 0), topic.count)
        starts = [*topic.starts, *[0] * (count - len(topic.starts))]
        for report in reports:
            for (of_topic, partition), end in report.ends.items():
                if of_topic == name and partition < count:
                    starts[partition] = max(starts[partition], end)
        topics[name] = TopicState(topic.id, count, tuple(starts))
    totals = replace(state.totals)
    for report in reports:
        totals.add(report.counts)
    return replace(state, batch=batch, topics=topics, totals=totals)
