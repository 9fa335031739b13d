"""Simulated clients that claim exclusive ownership of a resource, or wait in its queue."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import (
    IF_FREE,
    RESET_GENERATION,
    Access,
    HeldResource,
    OwnRequest,
    OwnResponse,
    RenewRequest,
    RenewResponse,
    ResourceClaim,
    ResourceStanding,
)
from tests.sim.client import OWNERS_GROUP, Client, Surroundings
from tests.sim.history import Incarnation, TopicPartition
from tests.sim.owner_history import OwnerHistory, Told
from tests.sim.queue_history import Home, Place

SESSION_TIMEOUT_MS = 2500
SURE_S = 2.4
"""Seconds after a request during which the broker must not expire the client."""
TIMEOUT_MS = 3000
NO_EPOCH = -1
_COMMON_ID = "everyone"
_COMMON_SHARE = 0.3
_WAITS_MS = (0, 0, 1500, 6000, -1)
ABSURD_RAISE = 2**40
"""How far above the last generation seen a claim sometimes names one. The broker has to refuse it."""
_WAITING = -1
"""Incarnation named by a client without a grant."""
_REFUSALS = frozenset({ErrorCode.RESOURCE_OWNED, ErrorCode.STALE_GENERATION, ErrorCode.INVALID_GENERATION})
"""Answers to a claim that say that it was not granted and never will be."""

_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A pending claim: the broker's address, the incarnation of the resource, the generation named, the time
    of the request, and the longest wait in the queue. `believed_epoch` is the broker's leader epoch then."""

    address: Address
    place: Incarnation
    named: int
    asked_s: float
    wait_ms: int
    believed_epoch: int


class Claimant(Client):
    """A client that claims the resource `at` by the own API."""

    group = OWNERS_GROUP
    access = Access.WRITE

    def __init__(self, around: Surroundings, name: str, at: TopicPartition, told: OwnerHistory) -> None:
        super().__init__(around, name)
        self.at = at
        self.told = told
        self._stranger_rng = around.world.rng(f"{name}: owner ids and secrets")
        self.claimant_id = name
        """The name of this claimant in the histories: its owner id may be another's too."""
        self.owner_id = name
        self.secret = b""
        self.be_known_as(name)
        self.grant: Told | None = None
        self.in_queue: Place | None = None
        self.is_making = True
        self.is_leaving = False
        """Whether the client releases its resource as soon as it can."""
        self.has_worked = False
        self._judge_knows = around.decider
        self._seen = 0
        """Last generation that a broker reported."""
        self._open_claims: list[Asked] = []
        """The claims of this owner since its last grant, without those that were refused: a broker may have
        granted any of them, and its answer may be lost."""
        self._granted_on: Home | None = None
        """Broker and connection of the last answer that confirmed the client's grant."""
        self._sure_until_s = 0.0
        """Until this time the deciding broker must not have expired the client."""
        self._is_asking = False
        self._is_resuming = False

    def be_known_as(self, claimant_id: str) -> None:
        """Draw an owner id and a secret. Some claimants are configured with the same owner id."""
        self.claimant_id = claimant_id
        self._open_claims = []
        self.owner_id = _COMMON_ID if self._stranger_rng.random() < _COMMON_SHARE else claimant_id
        self.secret = self._stranger_rng.randbytes(16)

    # Overridden in subclasses

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return not self._is_asking

    def has_gained(self, grant: Told) -> None:
        """Called when the client has just been granted the resource."""

    @property
    def place(self) -> Incarnation | None:
        topic = self.topics.get(self.at[0])
        return None if topic is None else Incarnation(self.at, topic.topic_id)

    def decider(self) -> Address | None:
        """The broker that decides about the resource; if it is unknown, start a lookup and return None."""
        leader = self.leader_of(self.at)
        if leader is None:
            self.refresh()
            return None
        return leader[0]

    def look_again(self) -> None:
        """Look up the deciding broker again: it may have changed."""
        self.refresh()

    # The deciding broker

    def _home(self, address: Address, leader_epoch: int = NO_EPOCH) -> Home:
        """The broker at `address`, its leader epoch, and the number of the connection to it."""
        broker = self._judge_knows(address, self.at)
        epoch = broker.believed_epoch if leader_epoch == NO_EPOCH else leader_epoch
        return Home(address, broker.life, epoch, self.network.connections[address])

    def stands_on(self, address: Address) -> bool:
        """Whether a request sent now uses the connection on which the client's grant was confirmed."""
        on = self._granted_on
        is_same = on is not None and (on.address, on.connection) == (
            address,
            self.network.connections[address],
        )
        return is_same and self.is_connected(address)

    def _ask_how_it_stands(self, address: Address, incarnation: int):  # type: ignore[no-untyped-def]
        held = HeldResource(name=self.at[0], partition=self.at[1], incarnation=incarnation)
        request = RenewRequest(
            group=self.group, owner_id=self.owner_id, max_wait_ms=0, resources=[held], secret=self.secret
        )
        return self.send(address, request)

    def _unanswered(self, failure: Failure) -> None:
        self._is_asking = False
        self.look_again()

    # Claims

    def _claim(self) -> None:
        address, place = self.decider(), self.place
        if address is None or place is None or self._is_asking:
            return
        self._is_asking = True
        named = self._generation_to_name()
        wait_ms = self.rng.choice(_WAITS_MS) if named == IF_FREE else 0
        asked = self.asks(address, place, named, wait_ms)
        request = OwnRequest(
            group=self.group,
            owner_id=self.owner_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            timeout_ms=TIMEOUT_MS,
            wait_timeout_ms=wait_ms,
            access=self.access,
            resources=[ResourceClaim(name=self.at[0], partition=self.at[1], generation=named)],
            secret=self.secret,
        )

        def answered(response: OwnResponse) -> None:
            self._is_asking = False
            self.history.operations += 1
            if response.error_code != ErrorCode.NONE:
                self.abandon(address)
            for standing in response.resources:
                self.claimed(asked, standing)

        self.send(address, request).addCallbacks(answered, self._unanswered)

    def _generation_to_name(self) -> int:
        chance = self.rng.random()
        if self.told.has_resets and chance < 0.1:
            return RESET_GENERATION
        if chance < 0.5 or self._seen == 0:
            return IF_FREE
        if chance > 0.97:
            return self._seen + ABSURD_RAISE
        return max(1, self._seen - (chance > 0.9))

    def asks(self, address: Address, place: Incarnation, named: int, wait_ms: int) -> Asked:
        """Called before a claim is sent."""
        epoch = self._judge_knows(address, self.at).believed_epoch
        asked = Asked(address, place, named, self.world.seconds(), wait_ms, epoch)
        self._open_claims.append(asked)
        return asked

    def _decided_at(self, asked: Asked, standing: ResourceStanding) -> Home:
        """The broker that decided a claim. Its epoch is unknown if it changed after the claim was sent."""
        home = self._home(asked.address, standing.leader_epoch)
        is_told = standing.leader_epoch != NO_EPOCH
        return home if is_told or home.leader_epoch == asked.believed_epoch else home.in_no_epoch()

    def claimed(self, asked: Asked, standing: ResourceStanding) -> None:
        """Called with the answer to a claim."""
        self._seen = max(self._seen, standing.generation)
        if standing.error_code in _REFUSALS:
            self._open_claims = [claim for claim in self._open_claims if claim is not asked]
        if standing.error_code == ErrorCode.NONE:
            home = self._decided_at(asked, standing)
            self._granted(asked.place, asked.named, asked.asked_s, standing, home)
        elif standing.error_code == ErrorCode.CLAIM_QUEUED:
            now_s = self.world.seconds()
            patience_s = None if asked.wait_ms < 0 else asked.wait_ms / 1000
            home = self._decided_at(asked, standing)
            self.in_queue = Place(
                self.claimant_id, asked.place, self.access, home, asked.asked_s, now_s, patience_s
            )
            self.told.queues.queued(self.in_queue, standing.position)
        elif standing.error_code == ErrorCode.REQUEST_TIMED_OUT:
            self.abandon(asked.address)
        elif standing.error_code in _ELSEWHERE:
            self.look_again()

    def abandon(self, address: Address) -> None:
        """Drop the connection, and with it any grant there that the client does not know about."""
        self.drop(address)
        self.look_again()

    def _granted(
        self, place: Incarnation, named: int, asked_s: float, standing: ResourceStanding, home: Home
    ) -> None:
        self.in_queue = None
        self.grant = Told(
            self.claimant_id,
            place,
            standing.generation,
            standing.incarnation,
            standing.fence_offset,
            named,
            asked_s,
            self.world.seconds(),
            self.group,
            self.access,
            self.owner_id,
            frozenset(claim.named for claim in self._open_claims if claim.place == place),
        )
        self._open_claims = []
        self.world.trace(self.name, f"has {self.grant}")
        self._seen = standing.generation
        self._granted_on = home
        self._is_resuming = False
        self.has_gained(self.grant)
        self.told.granted(self.grant)
        self._sure_until_s = asked_s + SURE_S

    # Waiting

    def _ask_for_place(self, waiting: Place) -> None:
        address = waiting.home.address
        if self._home(address).connection != waiting.home.connection or not self.is_connected(address):
            self._left_queue(waiting)
            return
        asked_s = self.world.seconds()
        self._ask_how_it_stands(address, _WAITING).addCallbacks(
            lambda response: self._told_place(waiting, asked_s, response),
            lambda failure: self._left_queue(waiting),
        )

    def _told_place(self, waiting: Place, asked_s: float, response: RenewResponse) -> None:
        self.history.operations += 1
        if waiting is not self.in_queue:
            return
        broker = self._judge_knows(waiting.home.address, self.at)
        for standing in response.resources:
            if standing.error_code == ErrorCode.NONE:
                self.told.queues.promoted(waiting)
                home = self._home(waiting.home.address, standing.leader_epoch)
                is_told = standing.leader_epoch != NO_EPOCH
                home = home if is_told or home == waiting.home else home.in_no_epoch()
                self._granted(waiting.place, IF_FREE, waiting.asked_s, standing, home)
            elif standing.error_code != ErrorCode.CLAIM_QUEUED:
                is_there = self._home(waiting.home.address) == waiting.home
                if is_there and standing.error_code == ErrorCode.REQUEST_TIMED_OUT:
                    self.told.queues.ran_out(waiting, asked_s)
                self._left_queue(waiting)
            elif standing.position > 0:
                self.told.queues.waits(waiting, standing.position, asked_s, broker.awake_since_s)
        if response.error_code != ErrorCode.NONE:
            self._left_queue(waiting)

    def _left_queue(self, waiting: Place) -> None:
        """Stop waiting. Closing the connection removes the client from the broker's queue."""
        if waiting is self.in_queue:
            self.in_queue = None
            self.abandon(waiting.home.address)
