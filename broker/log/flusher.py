"""Group commit: one fsync at a time for each log, shared by all requests that wait for it.

A request that arrives during an fsync waits for the next one: its bytes may have been written after the
running fsync began.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.log.flush_job import FlushJob, begin_flush, finish_flush
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.pressure import RETRY_S, retried
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.clock import Clock, now_ms
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for


class Flusher:
    """Runs the flushes of many logs in worker threads.

    A flush that fails for lack of descriptors or memory is tried again every second.
    """

    def __init__(self, workers: Workers, clock: Clock) -> None:
        self._workers = workers
        self._clock = clock
        self._waiting: dict[Log, list[tuple[int, Deferred[None]]]] = {}
        """The logs being flushed, each with the offsets that callers wait for, and their Deferreds."""

    def durable(self, log: Log, up_to_offset: int) -> Deferred[None]:
        """Fires when all records before `up_to_offset` are durable.

        Fails with BrokerError: KAFKA_STORAGE_ERROR where the flush failed, NOT_LEADER_OR_FOLLOWER where the
        records were truncated meanwhile.
        """
        if log.recovery_point >= up_to_offset:
            return succeed(None)
        done: Deferred[None] = Deferred()
        waiting = self._waiting.get(log)
        if waiting is not None:
            waiting.append((up_to_offset, done))
        else:
            self._waiting[log] = [(up_to_offset, done)]
            self._begin(log)
        return done

    def is_busy(self, log: Log) -> bool:
        """Whether a flush of the log is under way, or begins soon."""
        return log in self._waiting

    def flush(self, log: Log) -> None:
        """Start to make the log's present records durable; the log itself reports a failure."""
        self.durable(log, log.log_end_offset).addErrback(lambda failure: failure.trap(BrokerError) and None)

    def _begin(self, log: Log) -> None:
        try:
            job = begin_flush(log, now_ms(self._clock))
        except BrokerError as error:
            if log.failure is None:
                # Descriptors or memory are lacking. The callers keep waiting for the next attempt.
                self._clock.callLater(RETRY_S, self._begin, log)
            else:
                self._refuse_all(log, error)
            return
        except Exception:
            self._failed(log, Failure())
            return
        running = retried(self._clock, f"flush of {log.directory}", lambda: self._workers.run(job.run))
        running.addCallback(lambda _: self._done(log, job))
        running.addErrback(lambda failure: self._failed(log, failure))

    def _done(self, log: Log, job: FlushJob) -> None:
        finish_flush(log, job)
        waiting = self._waiting.pop(log)
        durable = log.recovery_point
        rest = [(offset, done) for offset, done in waiting if durable < offset <= log.log_end_offset]
        # Before the callers are answered: they may append and ask again at once.
        if rest:
            self._waiting[log] = rest
            self._begin(log)
        elif job.truncations != log.truncations and log.epochs.is_dirty and log.failure is None:
            # The job may have written leader epochs that a truncation had removed.
            self._waiting[log] = []
            self._begin(log)
        for offset, done in waiting:
            if offset <= durable:
                done.callback(None)
            elif offset > log.log_end_offset:
                truncated = f"{log.topic_partition} was truncated before {offset} was durable"
                done.errback(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, truncated))

    def _failed(self, log: Log, failure: Failure) -> None:
        error = failure.value
        if not isinstance(error, OSError):
            error = OSError(f"the flush failed: {error!r}")
        self._refuse_all(log, log.failed(error))

    def _refuse_all(self, log: Log, error: BrokerError) -> None:
        for _, done in self._waiting.pop(log, ()):
            done.errback(error)
