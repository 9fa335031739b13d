"""One consumer, several threads or processes: a clear error, and no hang."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.clients.consuming.heartbeat_thread import HeartbeatThread
from holdfast_log.clients.errors import ConcurrentUseError, ForkedConsumerError
from holdfast_log.clients.fetching.consumer_use import ConsumerUse
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.test_consumer import FLIGHTS, fill, read, reader_on

HOME = Path(__file__).parents[2]
WAIT_S = 60


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    fill(cluster.add_topic("flights")[0], 100)
    return cluster


class TestThreads:
    def test_a_second_thread_is_refused_with_the_names_of_both_calls(self, cluster: FakeCluster) -> None:
        is_polling, may_end = threading.Event(), threading.Event()

        def wait(topic: str, value: bytes) -> bytes:
            is_polling.set()
            assert may_end.wait(WAIT_S)
            return value

        consumer = reader_on(cluster, value_deserializer=wait)
        records: list[Any] = []
        poller = threading.Thread(target=lambda: records.extend(read(consumer, 100)), name="poller")
        poller.start()
        assert is_polling.wait(WAIT_S)
        for method, call in {
            "poll": lambda: consumer.poll(0),
            "seek": lambda: consumer.seek(FLIGHTS, 0),
            "end_offsets": lambda: consumer.end_offsets([FLIGHTS]),
            "close": consumer.close,
        }.items():
            with pytest.raises(
                ConcurrentUseError,
                match=rf"{method}\(\) was called in thread MainThread.* poll\(\) in thread poller",
            ):
                call()
        consumer.wake()
        may_end.set()
        poller.join(WAIT_S)

        assert [record.offset for record in records] == list(range(100))
        assert consumer.poll(0) == [], "threads may use it one after the other"

    def test_many_threads_get_records_or_the_error(self, cluster: FakeCluster) -> None:
        for partition in cluster.add_topic("more", 3):
            fill(partition, 2_000)
        consumer = reader_on(cluster, {"max.poll.records": 3})
        consumer.add_topic("more")
        strange: list[BaseException] = []
        offsets: list[int] = []

        def poll() -> None:
            for _ in range(300):
                try:
                    offsets.extend(record.offset for record in consumer.poll(0))
                except ConcurrentUseError:
                    pass
                except BaseException as error:
                    strange.append(error)

        threads = [threading.Thread(target=poll) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)

        assert strange == [] and offsets

    def test_a_method_may_call_others(self, cluster: FakeCluster) -> None:
        seen = []
        consumer = reader_on(
            cluster, value_deserializer=lambda topic, value: seen.append(consumer.assignment())
        )
        read(consumer, 100)

        assert seen[0] == [FLIGHTS]

    def test_the_heartbeat_thread_waits_until_the_application_is_away(self) -> None:
        use = ConsumerUse()
        turns = threading.Semaphore(0)

        def take_turns() -> None:
            for _ in range(2):
                with use.beside():
                    turns.release()

        entered = use.enter("poll")
        thread = threading.Thread(target=take_turns)
        thread.start()
        assert not turns.acquire(timeout=0.05)
        with use.away():
            assert turns.acquire(timeout=WAIT_S)
            nested = use.enter("commit")  # A listener commits.
            use.leave(nested)
        use.leave(entered)
        assert turns.acquire(timeout=WAIT_S)
        thread.join(WAIT_S)

    def test_the_thread_ends_with_its_consumer(self) -> None:
        class Loop:
            def turn_beside(self) -> int | None:
                return 1

        loop = Loop()
        thread = HeartbeatThread(loop, "t")
        del loop
        thread._thread.join(WAIT_S)

        assert not thread._thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_consumer_is_refused_and_closing_it_does_nothing(cluster: FakeCluster) -> None:
    consumer = reader_on(cluster)
    read(consumer, 100)
    requests = len(cluster.brokers[1].requests)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            consumer.poll(0)
        except ForkedConsumerError:
            consumer.close()
            status = 0 if len(cluster.brokers[1].requests) == requests else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert consumer.poll(0) == []


def test_a_program_that_forgets_to_close_its_consumer_ends() -> None:
    program = """
        from holdfast_log import Consumer
        consumer = Consumer({"bootstrap.servers": "localhost:1", "group.id": "g"})
        consumer.add_topic("flights")
        consumer.poll(300)
        print("end")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=HOME, capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip

    assert (done.stdout, done.returncode) == ("end\n", 0), done.stderr
