"""A producer with a thread: what would wait for ever raises, and every end is bounded.

The programs run in processes of their own; their brokers do not exist.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.clients.errors import ForkedError, InsideCallbackError, UndeliveredError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse

HOME = Path(__file__).parents[3]
DEAD = "127.0.0.1:1"
PROGRAM = f"""
import sys
import time
from holdfast_log import Message, Producer
producer = Producer({{"bootstrap.servers": "{DEAD}"}})
"""


def dead_producer(**properties: Any) -> Producer:
    return Producer({"bootstrap.servers": DEAD, **properties})


def started(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM + program],
        cwd=HOME,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("call", ["result", "flush", "close"])
def test_a_call_that_waits_inside_a_callback_raises(call: str) -> None:
    errors: list[Exception] = []
    called = threading.Event()
    producer = dead_producer(**{"bootstrap.timeout.ms": 100})
    pending = producer.send(Message("flights", value="pending"))

    def callback(_: SendResponse) -> None:
        late = producer.send(Message("flights", value="late"))
        waits = {"result": late.result, "flush": producer.flush, "close": producer.close}
        try:
            waits[call]()
        except InsideCallbackError as error:
            errors.append(error)
        called.set()

    pending.on_completion(callback)
    assert called.wait(120)
    assert len(errors) == 1 and f"{call}() was called inside a callback" in str(errors[0])
    with pytest.raises(UndeliveredError):
        producer.close(0)


def test_a_callback_may_stop_the_producer_at_once() -> None:
    producer = dead_producer(**{"bootstrap.timeout.ms": 100})
    ended = threading.Event()
    first = producer.send(Message("flights", value="v"))
    first.on_completion(lambda _: (producer.close(0), ended.set()))
    assert ended.wait(120)
    producer.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_producer_says_so_in_a_forked_process() -> None:
    program = """
import os
from holdfast_log import ForkedError
before = producer.send(Message("flights", value="before"))
child = os.fork()
if child == 0:
    for call in (lambda: producer.send(Message("t", value="v")), before.result, producer.flush):
        try:
            call()
        except ForkedError as error:
            print(str(error).partition(",")[0], flush=True)
    producer.close()
    os._exit(0)
os.waitpid(child, 0)
os._exit(0)
"""
    process = started(program)
    said, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert said.splitlines() == [f"this producer belongs to process {process.pid}"] * 3


def test_close_is_bounded_by_its_timeout() -> None:
    producer = dead_producer()
    producer.send(Message("flights", value="v"))
    began_s = time.monotonic()
    with pytest.raises(UndeliveredError, match="1 message was not delivered"):
        producer.close(300)
    assert time.monotonic() - began_s < 60  # It took as long as delivery.timeout.ms, two minutes.


@pytest.mark.parametrize("is_block", [False, True])
def test_ctrl_c_with_a_dead_broker_ends_the_program_and_names_what_is_lost(*, is_block: bool) -> None:
    patient = f'Producer({{"bootstrap.servers": "{DEAD}", "bootstrap.timeout.ms": 600_000}})'
    wait = 'producer.send_many("flights", ["v"] * 100); print("ready", flush=True)'
    # Short waits: a signal that comes just before a call blocks does not end it.
    wait += "\n    while True: time.sleep(0.05)" if is_block else "\nwhile True: time.sleep(0.05)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{PROGRAM}\nwith {patient} as producer:\n    {wait}" if is_block
         else f"{PROGRAM}\nproducer = {patient}\n{wait}"],
        cwd=HOME, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    process.wait(100)  # The records are given up by delivery.timeout.ms after two minutes.
    assert process.stderr is not None
    said = process.stderr.read()
    assert "KeyboardInterrupt" in said and "100 messages were not delivered" in said


def test_the_exit_of_the_interpreter_says_how_many_records_were_lost() -> None:
    process = started('producer.send_many("flights", ["v"] * 100)')
    _, error = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "at the exit of the interpreter: 100 messages were not delivered: 100 to flights" in error


def test_a_fork_while_threads_send_finds_the_lock_free() -> None:
    producer = dead_producer()
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            producer.send(Message("flights", value="v"))
            time.sleep(0.0001)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                try:
                    producer.send(Message("flights", value="v"))
                except ForkedError:
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
    with pytest.raises(UndeliveredError):
        producer.close(0)
