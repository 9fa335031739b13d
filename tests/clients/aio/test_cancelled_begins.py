"""A transaction whose begin was cancelled is aborted before the next one begins."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast_log.aio import AsyncProducer
from holdfast_log.clients.aio import producer as producer_module
from tests.clients.aio.silence import WAIT_S, run, silent_broker


class Transactions:
    """Begins transactions when it may, and says in which order what has happened."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.has_begun, self.may_return = threading.Event(), threading.Event()
        self.is_aborting, self.may_abort = threading.Event(), threading.Event()
        self.has_begun_again = threading.Event()

    def begin(self, timeout_ms: int | None) -> Any:
        self.happened.append("begin")
        if self.happened == ["begin"]:
            self.has_begun.set()
            assert self.may_return.wait(WAIT_S)
        else:
            self.has_begun_again.set()
        return self

    def abort(self) -> None:
        self.is_aborting.set()
        assert self.may_abort.wait(WAIT_S)
        self.happened.append("abort")


async def cancelled_begin_and_another(
    producer: AsyncProducer, transactions: Transactions, wait_s: float
) -> None:
    """Cancel a begin, and begin another one. The abort waits for it for `wait_s` at most."""

    async def begun() -> None:
        await producer.transaction()

    first = asyncio.create_task(begun())
    await asyncio.to_thread(transactions.has_begun.wait, WAIT_S)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    transactions.may_return.set()
    await asyncio.to_thread(transactions.is_aborting.wait, WAIT_S)
    second = asyncio.create_task(begun())
    await asyncio.to_thread(transactions.has_begun_again.wait, wait_s)
    transactions.may_abort.set()
    await second


def order_of(monkeypatch: pytest.MonkeyPatch, wait_s: float) -> list[str]:
    transactions = Transactions()

    async def main(properties: dict[str, Any]) -> None:
        producer = AsyncProducer({**properties, "transactional.id": "t"})
        monkeypatch.setattr(producer._client, "transaction", transactions.begin)
        await cancelled_begin_and_another(producer, transactions, wait_s)
        await producer.close(0)

    with silent_broker() as properties:
        run(main(properties))
    return transactions.happened


def test_the_next_transaction_waits_for_the_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    assert order_of(monkeypatch, 0.2) == ["begin", "abort", "begin"]


def test_one_that_does_not_wait_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "wait_for", lambda undoing: None)
    assert order_of(monkeypatch, WAIT_S) == ["begin", "begin", "abort"]
