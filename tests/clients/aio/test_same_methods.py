"""The asyncio clients have what the ordinary ones have: a method that is added there must be added here."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from holdfast_log import Admin, Consumer, ExclusiveConsumer, ExclusiveProducer, Producer, aio
from holdfast_log.aio import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncExclusiveConsumer,
    AsyncExclusiveProducer,
    AsyncProducer,
    AsyncTransaction,
)
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.clients.sending.message_sender import MessageSender, send_in_python
from holdfast_log.clients.transactions.transaction import ProducerTransaction

PAIRS: dict[type, type] = {
    Admin: AsyncAdmin,
    Producer: AsyncProducer,
    ExclusiveProducer: AsyncExclusiveProducer,
    Consumer: AsyncConsumer,
    ExclusiveConsumer: AsyncExclusiveConsumer,
    ProducerTransaction: AsyncTransaction,
    RebalanceListener: aio.AsyncRebalanceListener,
}
ONLY_ORDINARY = {
    "turn",  # Of producers without a thread, for simulations.
}
ONLY_ASYNC = {"publish", "ownership_events"}
NEVER_WAIT = {
    "wake", "transaction", "on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost",
    "epoch", "fence", "fence_offset", "generation", "token", "ownership_events",
}  # fmt: skip
"""Methods that are no coroutines. `transaction` begins with `async with`."""
QUICK_OF_PRODUCERS = {"feedback", "partitions_for"}
OTHER_TYPES = {"on_event", "rebalance_listener", "dead_letter", "on_ownership", "values", "keys"}
"""Arguments that may be coroutines in an event loop, or whose types differ between the ordinary clients."""


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def arguments(method: Any) -> list[tuple[str, Any, Any, str]]:
    """Names, kinds, defaults and types of a method's arguments, without self. The `**more` of an exclusive
    consumer are those of a consumer."""
    found = list(inspect.signature(method).parameters.values())
    return [
        (
            each.name,
            each.kind,
            each.default,
            "" if each.name in OTHER_TYPES else str(each.annotation).replace("uuid.", ""),
        )
        for each in found
        if each.name not in ("self", "is_threaded", "on_ownership")
        and each.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def members(ordinary: type) -> list[str]:
    return sorted(public(ordinary) - ONLY_ORDINARY)


EVERY = [(ordinary, name) for ordinary in PAIRS for name in members(ordinary)]


def test_nothing_is_missing_and_nothing_is_new() -> None:
    for ordinary, asynchronous in PAIRS.items():
        assert public(ordinary) - public(asynchronous) <= ONLY_ORDINARY, asynchronous
        new = public(asynchronous) - public(ordinary) - {"settings", "topic", "mode", "producer_id"}
        assert new - {"partitions", "owner_id"} <= ONLY_ASYNC, asynchronous
    assert len(EVERY) > 120


@pytest.mark.parametrize(("ordinary", "name"), EVERY)
def test_a_method_has_the_same_arguments_and_is_a_coroutine_if_it_may_wait(ordinary: type, name: str) -> None:
    one, other = getattr(ordinary, name), getattr(PAIRS[ordinary], name)
    one = send_in_python if one is MessageSender.send else one
    if isinstance(inspect.getattr_static(ordinary, name), property):
        assert isinstance(inspect.getattr_static(PAIRS[ordinary], name), property)
        return
    assert arguments(other) == arguments(one)
    is_quick = name in QUICK_OF_PRODUCERS and issubclass(ordinary, Producer | ExclusiveProducer)
    is_quick |= (ordinary, name) == (Admin, "feedback")
    assert inspect.iscoroutinefunction(other) == (name not in NEVER_WAIT and not is_quick)
    assert (other.__doc__ or "").strip()


@pytest.mark.parametrize("ordinary", [Admin, Producer, ExclusiveProducer, Consumer])
def test_a_client_is_made_with_the_same_arguments(ordinary: type) -> None:
    assert arguments(PAIRS[ordinary].__init__) == arguments(ordinary.__init__)


def test_an_exclusive_consumer_takes_its_own_arguments_and_those_of_a_consumer() -> None:
    names = {name for name, *_ in arguments(AsyncExclusiveConsumer.__init__)}
    own = {name for name, *_ in arguments(ExclusiveConsumer.__init__)}
    of_consumers = {name for name, *_ in arguments(Consumer.__init__)} - {"fence"}

    assert names == own | of_consumers


@pytest.mark.parametrize("name", aio.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(aio, name) is not None and name in dir(aio)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="AsyncProdcer"):
        aio.AsyncProdcer  # noqa: B018
