"""Changes who may use the znodes of a cluster that exists: `zookeeper-security-migration.sh`.

Brokers give each znode its access control list when they create it (`zookeeper.set.acl`). This program gives
the same lists to the znodes that were created before, or opens all of them again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
from twisted.internet.defer import Deferred, DeferredList, ensureDeferred

from holdfast_log.broker.process.zookeeper_identity import zookeeper_identity
from holdfast_log.broker.settings.zookeeper_tls import zookeeper_tls_in
from holdfast_log.coordinator.znodes.access import ROOTS, restricted
from holdfast_log.coordinator.zookeeper.access import AccessRule, for_everybody
from holdfast_log.coordinator.zookeeper.interface import AccessDenied, NoNode, ZooKeeperError
from holdfast_log.coordinator.zookeeper.kazoo_session import KazooSession
from holdfast_log.coordinator.zookeeper.kazoo_zookeeper import KazooZooKeeper, split_connect

T = TypeVar("T")

_AT_ONCE = 200
"""Znodes that are asked about in one go."""
_SHOWN_MAX = 5


@dataclass(slots=True)
class Migrated:
    """What was done: how many znodes have their new list, and the paths of those that ZooKeeper did not let
    us change."""

    changed: int = 0
    denied: list[str] = field(default_factory=list)


async def migrate(session: KazooSession, rule: AccessRule) -> Migrated:
    """Give each znode of the cluster the list by `rule`, parents before their children.

    A znode that disappears meanwhile is left out: an ephemeral one ends with its broker. Raises
    `ZooKeeperError`.
    """
    done = Migrated()
    paths: list[str] = ["/"]
    while paths:
        batch, paths = paths[:_AT_ONCE], paths[_AT_ONCE:]
        for path, result in zip(
            batch, await _all([session.set_access(p, rule(p)) for p in batch]), strict=True
        ):
            if isinstance(result, AccessDenied):
                done.denied.append(path)
            elif not isinstance(result, NoNode):
                _raise(result)
                done.changed += 1
        paths = await _children_of(session, batch) + paths
    return done


async def _children_of(session: KazooSession, paths: Sequence[str]) -> list[str]:
    """The children of znodes, those of the root only if they are the cluster's."""
    found: list[str] = []
    for path, result in zip(paths, await _all([session.children(p) for p in paths]), strict=True):
        if isinstance(result, NoNode | AccessDenied):
            continue
        _raise(result)
        children = [f"{path.rstrip('/')}/{name}" for name in result]
        found += [child for child in children if path != "/" or child in ROOTS]
    return found


async def _all(asked: Sequence[Deferred[Any]]) -> list[Any]:
    """The results of requests, and the exceptions of those that failed."""
    results = await DeferredList(asked, consumeErrors=True)
    return [value if succeeded else value.value for succeeded, value in results]


def _raise(result: object) -> None:
    if isinstance(result, Exception):
        raise result


class _Connection:
    """A connection to ZooKeeper whose work happens on one thread; a context manager."""

    def __init__(self, zookeeper: Callable[[Callable[..., Any]], KazooZooKeeper]) -> None:
        self._thread = ThreadPoolExecutor(1, "zookeeper-security")
        self._zookeeper = zookeeper(self._thread.submit)
        self._zookeeper.add_listener(self)
        self._is_connected = threading.Event()

    def __enter__(self) -> _Connection:
        self._thread.submit(self._zookeeper.start).result()
        return self

    def __exit__(self, *_: object) -> None:
        closed = threading.Event()
        self._thread.submit(lambda: self._zookeeper.close().addBoth(lambda _: closed.set()))
        closed.wait()
        self._thread.shutdown()

    def session_connected(self, session: object) -> None:
        self._is_connected.set()

    def session_suspended(self, session: object) -> None:
        pass

    def session_expired(self, session: object) -> None:
        pass

    def wait_connected(self, timeout_s: float) -> bool:
        return self._is_connected.wait(timeout_s)

    def run(self, function: Callable[[KazooSession], Coroutine[Any, Any, T]]) -> T:
        """What the coroutine returns or raises, run on the session."""
        done: Future[T] = Future()

        def begin() -> None:
            asked = ensureDeferred(function(self._zookeeper.session))
            asked.addCallbacks(done.set_result, lambda failure: done.set_exception(failure.value))

        self._thread.submit(begin)
        return done.result()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--zookeeper.acl",
    "acl",
    type=click.Choice(["secure", "unsecure"]),
    required=True,
    help="secure: only brokers with that user may write. unsecure: everybody may.",
)
@click.option(
    "--zookeeper.connect",
    "connect",
    default="localhost:2181",
    show_default=True,
    metavar="HOST:PORT,…[/CHROOT]",
    help="The brokers' setting of the same name.",
)
@click.option(
    "--zookeeper.digest.file",
    "digest_file",
    metavar="FILE",
    help="The brokers' setting of the same name. Needed for secure, and to open what was secured with it.",
)
@click.option(
    "--zookeeper.sasl.file",
    "sasl_file",
    metavar="FILE",
    help="The brokers' setting of the same name, in place of --zookeeper.digest.file or beside it.",
)
@click.option(
    "--zookeeper.session.timeout",
    "session_timeout_ms",
    type=click.IntRange(min=1),
    default=30_000,
    show_default=True,
    metavar="MS",
    help="Time without contact after which ZooKeeper ends the session.",
)
@click.option(
    "--zookeeper.connection.timeout",
    "connection_timeout_ms",
    type=click.IntRange(min=1),
    default=30_000,
    show_default=True,
    metavar="MS",
    help="Maximum time to wait for ZooKeeper.",
)
@click.option(
    "--zk-tls-config-file",
    "tls_file",
    metavar="FILE",
    help="Properties file with zookeeper.ssl.client.enable=true and further settings zookeeper.ssl.*, such "
    "as a broker's: then --zookeeper.connect names ZooKeeper's secure port.",
)
def main(
    acl: str,
    connect: str,
    digest_file: str | None,
    sasl_file: str | None,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    tls_file: str | None,
) -> None:
    """Change who may use the znodes of a cluster, while its brokers run.

    \b
    To close a cluster:
      1. restart each broker with zookeeper.digest.file or zookeeper.sasl.file,
      2. restart each with zookeeper.set.acl=true,
      3. run this program with secure.
    To open it again:
      1. restart each broker with zookeeper.set.acl=false,
      2. run this program with unsecure,
      3. restart each without that file.
    """
    restricts = acl == "secure"
    try:
        identity = zookeeper_identity(digest_file, sasl_file, restricts=restricts)
        tls = None if tls_file is None else zookeeper_tls_in(tls_file)
        split_connect(connect)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    rule = restricted if restricts else for_everybody
    with _Connection(
        lambda call: KazooZooKeeper(connect, session_timeout_ms, call, identity=identity, tls=tls)
    ) as connection:
        if not connection.wait_connected(connection_timeout_ms / 1000):
            raise click.ClickException(
                f"ZooKeeper at {connect} did not answer within {connection_timeout_ms} ms"
            )
        try:
            done = connection.run(lambda session: migrate(session, rule))
        except ZooKeeperError as error:
            raise click.ClickException(
                f"ZooKeeper did not change all znodes ({type(error).__name__} {error}): run it again"
            ) from None
    if done.denied:
        shown = ", ".join(done.denied[:_SHOWN_MAX]) + (", …" if len(done.denied) > _SHOWN_MAX else "")
        raise click.ClickException(
            f"ZooKeeper does not let this program change {len(done.denied)} znodes ({shown}); {done.changed} "
            "were changed. Give the file of the user that they were created with: --zookeeper.digest.file or "
            "--zookeeper.sasl.file"
        )
    state = "restricted" if restricts else "open to everybody"
    click.echo(f"{done.changed} znodes of {connect} are now {state}.")


if __name__ == "__main__":
    main(prog_name="zookeeper-security-migration.sh")
