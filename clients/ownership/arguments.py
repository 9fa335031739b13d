"""Checks of the arguments of Lease, ExclusiveProducer and ExclusiveConsumer.

A wrong type, or two arguments in the wrong order, fail at the call and not when the first request is encoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast_log.clients.ownership.events import OwnedResource
from holdfast_log.protocol.topic_partition import TopicPartition


def check_text(name: str, value: Any) -> None:
    """Raises TypeError unless the argument `name` is a str."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {_shown(value)}")


def check_partitions(name: str, value: Any) -> list[TopicPartition]:
    """The partitions of the argument `name`. Raises TypeError if it has anything else."""
    partitions = []
    for each in _several(name, value, "TopicPartition"):
        if not _is_partition(each):
            raise TypeError(f"{name} must contain only TopicPartition(topic, partition), not {_shown(each)}")
        partitions.append(TopicPartition(*each))
    return partitions


def check_resources(name: str, value: Any) -> list[OwnedResource]:
    """The names and partitions of the argument `name`. Raises TypeError if it has anything else."""
    resources: list[OwnedResource] = []
    for each in _several(name, value, "names (str) and TopicPartition"):
        if isinstance(each, str):
            resources.append(each)
        elif _is_partition(each):
            resources.append(TopicPartition(*each))
        else:
            raise TypeError(
                f"{name} must contain only names (str) and TopicPartition(topic, partition), not "
                f"{_shown(each)}"
            )
    return resources


def check_numbers(name: str, value: Any) -> list[int]:
    """The partition numbers of the argument `name`. Raises TypeError if it has anything else."""
    numbers = _several(name, value, "partition numbers (int)")
    for each in numbers:
        if not isinstance(each, int):
            raise TypeError(f"{name} must contain only partition numbers (int), not {_shown(each)}")
    return numbers


def _several(name: str, value: Any, of: str) -> list[Any]:
    is_one = isinstance(value, str | bytes | TopicPartition)
    if is_one or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list, or another iterable, of {of}, not {_shown(value)}")
    return list(value)


def _is_partition(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int)
    )


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"
