"""The parts of a load: kinds of clients, with the topics that they use. Parts do not share topics."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from holdfast_log.checker.clients.claimant import RivalClaimant
from holdfast_log.checker.clients.crew import CheckClient, CheckSettings
from holdfast_log.checker.clients.keyed import KeyedWriter
from holdfast_log.checker.clients.lists import ListReader, ListWriter
from holdfast_log.checker.clients.outsiders import FencedWriter, Impostor, StrangeWriter
from holdfast_log.checker.clients.register import RegisterClient
from holdfast_log.checker.clients.repeats import Repeater
from holdfast_log.checker.clients.stubborn import StubbornOwner
from holdfast_log.checker.clients.topic_changes import FaithfulWriter, Grower, Recreator
from holdfast_log.checker.clients.writers import ConditionalWriter, ExclusiveWriter, TermWriter
from holdfast_log.clients.admin import NewTopic
from holdfast_log.clients.ownership.events import OwnedResource
from holdfast_log.protocol.messages.ownership import PRODUCERS_GROUP, Access
from holdfast_log.protocol.topic_partition import TopicPartition


class LoadPart(enum.StrEnum):
    """A kind of clients; docs/histories.md says what they do."""

    NAMES = "names"
    LOG = "log"
    EXCLUSIVE = "exclusive"
    TERMS = "terms"
    REGISTER = "register"
    OWNED = "owned"
    KEYED = "keyed"
    REPEATED = "repeated"
    RECREATED = "recreated"
    GROWN = "grown"
    STUBBORN = "stubborn"
    LISTS = "lists"


@dataclass(frozen=True, slots=True)
class PartTopic:
    """A topic of a part. If it `is_together` with others of the part, their replicas are on the same brokers,
    so that one broker leads them. One that `is_changing` is deleted, or grows, meanwhile. Transactions write
    to one that `has_lists`: each partition is a list."""

    name: str
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    is_together: bool = False
    is_changing: bool = False
    has_lists: bool = False


@dataclass(frozen=True, slots=True)
class PartRecipe:
    """The topics and the clients of a part. `new_topic` makes the request that creates a topic of it."""

    topics: tuple[PartTopic, ...]
    clients: Callable[[CheckSettings, Callable[[PartTopic], NewTopic]], list[CheckClient]]


_NewTopic = Callable[[PartTopic], NewTopic]
_RECREATED = PartTopic("recreated", is_changing=True)
_GROUPS_OF_LISTS = 2
_LISTS_EACH = 3


def place_of(settings: CheckSettings, topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(settings.topic(topic), partition)


def _names(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    clients: list[CheckClient] = [Impostor("impostor-names", settings)]
    for group in ("red", "blue", "green", "white"):
        name = settings.topic(group)
        clients += [RivalClaimant(f"claimant-{group}-{each}", settings, name, "leader") for each in "12"]
    return clients


def _log(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    places = [place_of(settings, "log", number) for number in range(2)]
    group = settings.topic("readers")
    clients: list[CheckClient] = [
        RivalClaimant(f"reader-{each}", settings, group, places[0], Access.READ) for each in "12"
    ]
    for place in places:
        clients += [ConditionalWriter(f"writer-{place.partition}-{each}", settings, place) for each in "12"]
    return clients


def _exclusive(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    place = place_of(settings, "exclusive")
    return [ExclusiveWriter(f"exclusive-{each}", settings, place) for each in "12"]


def _terms(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    terms, accounts = place_of(settings, "terms"), place_of(settings, "accounts")
    return [TermWriter(f"term-{each}", settings, terms, accounts) for each in "12"]


def _register(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    place = place_of(settings, "register")
    return [RegisterClient(f"register-{each}", settings, place) for each in "123"]


def _owned(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    """Two owners want the first partition; the second has one, who can always come back."""
    group = settings.topic("owners")
    rivals, lone = place_of(settings, "owned"), place_of(settings, "owned", 1)
    return [
        *(RivalClaimant(f"owner-{each}", settings, group, rivals) for each in "12"),
        RivalClaimant("owner-3", settings, group, lone),
        *(StrangeWriter(f"stranger-{place.partition}", settings, place) for place in (rivals, lone)),
        *(FencedWriter(f"fenced-writer-{place.partition}", settings, place) for place in (rivals, lone)),
    ]


def _keyed(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    place = place_of(settings, "keyed")
    return [KeyedWriter(f"keyed-{each}", settings, place) for each in "12"]


def _repeated(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    place = place_of(settings, "repeated")
    return [Repeater(f"repeater-{each}", settings, place) for each in "12"]


def _recreated(settings: CheckSettings, new_topic: _NewTopic) -> list[CheckClient]:
    place = place_of(settings, _RECREATED.name)
    return [
        Recreator("recreator", settings, new_topic(_RECREATED)),
        *(FaithfulWriter(f"faithful-{each}", settings, place) for each in "12"),
    ]


def _grown(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    place = place_of(settings, "grown")
    return [
        *(RivalClaimant(f"whole-{each}", settings, PRODUCERS_GROUP, place) for each in "12"),
        Grower("grower", settings, place.topic),
    ]


def _stubborn(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    """Two owners for each partition and for a name: whichever broker is struck, it decides about some."""
    group, brief = settings.topic("stubborn"), replace(settings, session_ms=settings.session_ms // 2)
    places = [place_of(settings, "stubborn", number) for number in range(3)]
    wanted: dict[str, OwnedResource] = {"name": "leader", **{str(place.partition): place for place in places}}
    return [
        StubbornOwner(f"stubborn-{what}-{each}", brief, group, resource)
        for what, resource in wanted.items()
        for each in "12"
    ]


def _lists(settings: CheckSettings, _: _NewTopic) -> list[CheckClient]:
    """Two writers for each group of lists, and two readers of all of them."""
    places = [place_of(settings, "lists", number) for number in range(_GROUPS_OF_LISTS * _LISTS_EACH)]
    clients: list[CheckClient] = [ListReader(f"list-reader-{each}", settings, places) for each in "12"]
    for group in range(_GROUPS_OF_LISTS):
        own = places[group * _LISTS_EACH : (group + 1) * _LISTS_EACH]
        name = settings.topic(f"lists-{group}")
        clients += [ListWriter(f"list-writer-{group}-{each}", settings, name, own) for each in "12"]
    return clients


RECIPES: Mapping[LoadPart, PartRecipe] = {
    LoadPart.NAMES: PartRecipe((), _names),
    LoadPart.LOG: PartRecipe((PartTopic("log", 2),), _log),
    LoadPart.EXCLUSIVE: PartRecipe((PartTopic("exclusive"),), _exclusive),
    LoadPart.TERMS: PartRecipe(
        (PartTopic("terms", is_together=True), PartTopic("accounts", is_together=True)), _terms
    ),
    LoadPart.REGISTER: PartRecipe((PartTopic("register"),), _register),
    LoadPart.OWNED: PartRecipe((PartTopic("owned", 2),), _owned),
    LoadPart.KEYED: PartRecipe((PartTopic("keyed", configs={"key.versions": "true"}),), _keyed),
    LoadPart.REPEATED: PartRecipe((PartTopic("repeated"),), _repeated),
    LoadPart.RECREATED: PartRecipe((_RECREATED,), _recreated),
    LoadPart.GROWN: PartRecipe((PartTopic("grown", is_changing=True),), _grown),
    LoadPart.STUBBORN: PartRecipe((PartTopic("stubborn", 3),), _stubborn),
    LoadPart.LISTS: PartRecipe((PartTopic("lists", _GROUPS_OF_LISTS * _LISTS_EACH, has_lists=True),), _lists),
}
