"""The plan of a seed: its topics, client habits and settings, and the possible faults and changes.

`tests.sim.drawing` draws it before the run.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.models.network import Weather
from tests.models.zookeeper import NORMAL_DELAY_MS_MAX
from tests.sim.faults import Strike
from tests.sim.producer import ProducerHabits


class Change(enum.Enum):
    """Changes to topics during the faulty phase."""

    GROW = "more partitions"
    MOVE = "replicas move"
    ELECT = "preferred leaders lead"
    REMAKE = "deleted and created again"
    TRIM = "records deleted"


@dataclass(frozen=True, slots=True)
class Shape:
    """Upper limits for the sizes of a simulated cluster, its topics and its clients.

    If it `is_gentle`, brokers are shut down in order and started again, one at a time, and there is no other
    fault. Then not even a record that only the leader acknowledged may be lost. If it `has_transactions`,
    transactional producers and readers of committed records are there too. If it `has_moves`, replicas move
    between the log directories of their brokers.
    """

    brokers: int = 3
    replicas: int = 3
    min_in_sync: int = 2
    producers_max: int = 4
    consumers_max: int = 2
    is_gentle: bool = False
    has_transactions: bool = False
    has_moves: bool = False


NAMES_KEPT = 3
NAMES_RETENTION_MS = 1000
"""In seeds with many names: how many a broker keeps, and for how long without an owner."""
QUOTA_WINDOWS = 3
"""Value of quota.window.num in seeds with quotas; a window takes one second. A client may save up what it
does not use for only as long as that, so that the judge's bound is narrow."""
METERED = "metered"
METERED_WRITERS = ("mw0", "mw1")
METERED_READER = "mr0"
"""The topic of clients that have quotas, its producers and its consumer. Their names are their client ids."""
LAST_LIMITS = {QuotaKey.PRODUCE: 4000.0, QuotaKey.FETCH: 30_000.0}
"""The last quotas of clients in seeds with quotas: under them they catch up."""
RETENTION_CHECK_MS = 1000
"""Value of log.retention.check.interval.ms in seeds with retention."""

SINGLE = Shape(brokers=1, replicas=1, min_in_sync=1)
THREE = Shape()
RESTARTS = Shape(is_gentle=True)
TRANSACTIONS = Shape(has_transactions=True)
MOVES = Shape(has_moves=True)
SHAPES = {
    "single": SINGLE,
    "three": THREE,
    "restarts": RESTARTS,
    "transactions": TRANSACTIONS,
    "moves": MOVES,
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the simulation. `may_lose` is true if unclean leader election is enabled for it."""

    name: str
    partitions: int
    replicas: int
    configs: tuple[tuple[str, str], ...]
    may_lose: bool = False
    is_remade: bool = False
    is_trimmed: bool = False
    """Whether the operator deletes the topic's records up to offsets that consumers have read."""
    is_owned: bool = False
    """Whether the topic has a `single.writer` policy: tenants contend for its partition."""
    is_keyed: bool = False
    """Whether the topic has key.versions: keyed writers contend for the keys of its partition."""
    is_compacted: bool = False
    """Whether brokers compact the topic: only writers of records with keys write to it."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group of consumers of one topic. `is_managed`: its members speak the client rewrite's protocol."""

    name: str
    topic: str
    is_managed: bool
    has_single_readers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantsPlan:
    """The tenants that contend for the partition of `topic`, and for a name.

    `are_conditional` has one entry per owner (own API): whether it appends conditionally. `producers` counts
    producers that ask for access in one of these `modes`, `names` owners of a name, `readers` single readers,
    `strangers` clients that write to the partition without claiming it, and `stray_readers` clients that read
    it in the group of the single readers.
    If the topic `is_strict`, only its owner may write (single.writer=required); else others may while it has
    no owner. If they `write_rarely`, they skip most opportunities to write; if they `leave_soon`, they keep
    the partition only briefly; if they `break_often`, their connections do.
    """

    topic: str
    is_strict: bool
    are_conditional: tuple[bool, ...] = ()
    producers: int = 0
    modes: tuple[ProducerAccessMode, ...] = ()
    names: int = 0
    names_kept: int = 0
    """If not 0: owners of names use many, one after the other, and brokers keep only as many as this."""
    readers: int = 0
    strangers: int = 0
    stray_readers: int = 0
    has_guards: bool = False
    has_resets: bool = False
    write_rarely: bool = False
    leave_soon: bool = False
    break_often: bool = False


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A quota that is set `at_s` seconds after the faulty phase began, or removed (None). `client` is its
    client id; None for all client ids without a quota. If it `is_of_user`, it is one of the user and the
    client id together, which comes before that of the client id."""

    at_s: float
    client: str | None
    key: QuotaKey
    limit: float | None
    is_of_user: bool = False

    def __str__(self) -> str:
        limit = "no limit" if self.limit is None else f"{self.limit:g}"
        user = " of the user" if self.is_of_user else ""
        return f"{self.key} of {self.client or 'every other client'}{user} becomes {limit}"


def _last_limit(client: str | None, key: QuotaKey, *, is_of_user: bool) -> float | None:
    return None if client is None or is_of_user else LAST_LIMITS[key]


@dataclass(frozen=True, slots=True)
class QuotasPlan:
    """The quotas of clients during a run: `changes` in the faulty phase, and the `last` ones after it, under
    which the cluster becomes idle within a minute."""

    habits: ProducerHabits
    changes: tuple[QuotaChange, ...]

    @property
    def last(self) -> tuple[QuotaChange, ...]:
        """Every quota that a change has set, with a limit under which its client catches up, or removed."""
        places = dict.fromkeys((change.client, change.key, change.is_of_user) for change in self.changes)
        return tuple(
            QuotaChange(0.0, client, key, _last_limit(client, key, is_of_user=is_of_user), is_of_user)
            for client, key, is_of_user in places
        )


@dataclass(frozen=True, slots=True)
class TransactionsPlan:
    """Producers with `ids` transactional ids, which write transactions to `topic` at a distance of about
    `pause_s` seconds. A transaction that lasts longer than `timeout_ms` is aborted. If it `has_offsets`, some
    commit offsets of a group. If `bumps`, most producers get a new epoch with each transaction. Of these
    producers, `owners` more write for the owners of a partition of `estate`, who contend for it."""

    topic: str
    ids: int
    timeout_ms: int
    pause_s: float
    has_offsets: bool
    bumps: bool = False
    owners: int = 0
    estate: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one seed has drawn. Faults happen during `faulty_s` seconds. `producers` and
    `consumers` have their names as keys; the value of a consumer is the version of Fetch that it uses."""

    shape: Shape
    faulty_s: float
    topics: tuple[Topic, ...]
    producers: Mapping[str, ProducerHabits]
    consumers: Mapping[str, int]
    strikes: tuple[Strike, ...]
    changes: tuple[Change, ...]
    groups: tuple[GroupPlan, ...]
    tenants: TenantsPlan | None
    weather: Weather
    is_flushed: bool = False
    """Whether every broker flushes before it acknowledges. If so, any machine may lose power at any time."""
    work_ms_max: float = 5.0
    """Longest time that a broker's worker thread takes for one job, in ms."""
    settings: Mapping[str, str | int | bool] = field(default_factory=dict)
    keyed_writers: int = 0
    """Number of clients that write with expected versions of keys, if a topic is keyed."""
    blind_writers: int = 0
    """Number of clients that write records with keys to the compacted topic, if there is one."""
    has_tombstones: bool = False
    """Whether these clients delete keys too, and now and then send a record without a key."""
    zookeeper_delay_ms_max: float = NORMAL_DELAY_MS_MAX
    """Longest time in milliseconds that a request to ZooKeeper, or its answer, takes on the network."""
    quotas: QuotasPlan | None = None
    """The quotas of clients that read and write the topic `METERED`."""
    payers: int = 0
    """Number of applications that write payments with append ids to `payers_topic`."""
    payers_topic: str = ""
    first_sequence: int = 0
    """The sequence with which idempotent producers begin."""
    reads_times: bool = False
    """Whether a client looks records up by their times."""
    transactions: TransactionsPlan | None = None
    moves_pause_s: float = 0.0
    """If not 0: about how often an administrator has a replica move to another log directory, in seconds."""
    result_ms_max: float = 0.0
    """Longest time in ms from the end of a worker thread's job to the moment at which the broker has the
    result. The log may grow, or be truncated, in between."""
