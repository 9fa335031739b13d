"""The broker as a process: real reactor, disk, network and ZooKeeper, signals, ready file and pid file."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, cast

from twisted.internet import reactor as _installed
from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.log.disk import OsDisk
from holdfast_log.broker.log.settings import log_directories
from holdfast_log.broker.metrics.settings import parse_address
from holdfast_log.broker.metrics.turn_times import TurnTimes
from holdfast_log.broker.network.admission import admission_of
from holdfast_log.broker.network.endpoints import parse_endpoints
from holdfast_log.broker.network.memory import RequestMemory
from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.broker.network.socket_options import SocketOptions
from holdfast_log.broker.network.tcp_network import TcpNetwork
from holdfast_log.broker.network.tls.listeners import TlsListeners
from holdfast_log.broker.network.turns import SendingTurn
from holdfast_log.broker.process import pid_file
from holdfast_log.broker.process.cluster_secret import read_cluster_secret
from holdfast_log.broker.process.collecting import Collecting
from holdfast_log.broker.process.descriptors import raise_limit, shares
from holdfast_log.broker.process.directory_locks import DirectoryInUse, DirectoryLocks
from holdfast_log.broker.process.freed_memory import FreedMemory, system_allocator
from holdfast_log.broker.process.lean_reactor import make_lean
from holdfast_log.broker.process.lifecycle import Broker
from holdfast_log.broker.process.monotonic_reactor import make_monotonic
from holdfast_log.broker.process.service_manager import READY, STOPPING, tell
from holdfast_log.broker.process.session_file import SessionFile, boot_id
from holdfast_log.broker.process.start_checks import StartError, future_file, require_descriptors
from holdfast_log.broker.process.twisted_log import log_twisted
from holdfast_log.broker.process.zookeeper_identity import zookeeper_identity
from holdfast_log.broker.setting_groups import read_group, settings_group
from holdfast_log.broker.settings.rows import ROWS
from holdfast_log.broker.settings.zookeeper_tls import zookeeper_tls
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.broker.workers import ThreadWorkers
from holdfast_log.clients.settings import SettingError, Settings
from holdfast_log.coordinator.raised import raised
from holdfast_log.coordinator.zookeeper.kazoo_zookeeper import KazooZooKeeper
from holdfast_log.protocol.one_line import one_line

if TYPE_CHECKING:
    from holdfast_log.broker.metrics.server import MonitoringServer

_log = logging.getLogger(__name__)

_reactor = cast(Any, _installed)

_SWITCH_INTERVAL_S = 0.0005
"""For how long a worker thread that runs Python may keep the reactor waiting; Python's default is 5 ms."""


@settings_group(ROWS)
@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """Settings of the broker's process."""

    zookeeper_connect: Annotated[str, "zookeeper.connect"]
    session_timeout_ms: Annotated[int, "zookeeper.session.timeout.ms"]
    digest_file: Annotated[str | None, "zookeeper.digest.file"]
    sasl_file: Annotated[str | None, "zookeeper.sasl.file"]
    is_acl_set: Annotated[bool, "zookeeper.set.acl"]
    worker_threads: Annotated[int, "background.threads"]
    queued_request_bytes_max: Annotated[int, "queued.max.request.bytes"]
    receive_timeout_ms: Annotated[int, "socket.request.receive.timeout.ms"]
    secret_file: Annotated[str | None, "cluster.secret.file"]
    metrics_address: Annotated[str | None, "metrics.http.listener"]
    clock_difference_ms_max: Annotated[int, "clock.difference.max.ms"]
    stop_ms_max: Annotated[int, "stop.timeout.ms"]


def run(settings: Settings, ready_file: str | None) -> int:
    """Run a broker until SIGTERM or SIGINT. Returns the process's exit status."""
    log_twisted()
    try:
        process = BrokerProcess(settings, ready_file)
    except (SettingError, DirectoryInUse, StartError, OSError) as error:
        print(f"Cannot start: {one_line(str(error))}", file=sys.stderr)
        return 1
    return process.run()


class BrokerProcess:
    """One broker in this process, with the real reactor. Raises SettingError, DirectoryInUse and
    StartError."""

    def __init__(self, settings: Settings, ready_file: str | None) -> None:
        self._ready_file = ready_file
        directories = log_directories(settings)
        descriptors = raise_limit()
        require_descriptors(descriptors)
        self._pid_file = pid_file.path_of(directories)
        self._status = 0
        self._is_stopping = False
        make_monotonic(_reactor)
        turns = TurnTimes(_reactor.seconds)
        sending = SendingTurn()
        rotation = Rotation(_reactor)
        make_lean(_reactor, turns, sending, rotation)
        own = read_group(ProcessSettings, settings)
        self._stop_ms_max = own.stop_ms_max
        memory = RequestMemory(own.queued_request_bytes_max)
        self._workers = ThreadWorkers(_reactor, own.worker_threads)
        boot = boot_id()
        machine_name = socket.getfqdn()
        endpoints = parse_endpoints(settings, machine_name)
        admission = admission_of(settings, endpoints)
        network = TcpNetwork(
            _reactor,
            read_group(SocketOptions, settings),
            memory,
            receive_timeout_ms=own.receive_timeout_ms,
            brokers_listener=admission.own or "",
            brokers_memory_bytes=own.queued_request_bytes_max,
        )
        tls = TlsListeners(settings, endpoints, network, _reactor, self._workers, _date_ms, rotation)
        around = Surroundings(
            clock=_reactor,
            disk=OsDisk(),
            zookeeper=KazooZooKeeper(
                own.zookeeper_connect,
                own.session_timeout_ms,
                _reactor.callFromThread,
                SessionFile(directories, boot),
                zookeeper_identity(own.digest_file, own.sasl_file, restricts=own.is_acl_set),
                zookeeper_tls(settings),
            ),
            network=network,
            tls=tls,
            workers=self._workers,
            random=random.SystemRandom(),
            date_ms=_date_ms,
            descriptors=shares(descriptors),
            boot=boot,
            secret=read_cluster_secret(own.secret_file),
            sending=sending,
            rotation=rotation,
        )
        self._broker = Broker(
            settings, around, machine_name=machine_name, fatal=self._fail, looks_around=True
        )
        self._locks = DirectoryLocks(directories)
        if wrong := future_file(directories, _date_ms(), own.clock_difference_ms_max):
            _log.warning("%s", wrong)
        self._monitoring: MonitoringServer | None = None
        self._metrics_address = ""
        if own.metrics_address:
            self._listen_for_metrics(own.metrics_address, turns, memory)

    def _listen_for_metrics(self, address: str, turns: TurnTimes, memory: RequestMemory) -> None:
        """Serve metrics and health from now on. Raises OSError."""
        from holdfast_log.broker.process.monitoring import monitoring_server

        broker = self._broker
        turns.watch_collections()
        self._monitoring = monitoring_server(
            _reactor, lambda: broker.measured(turns, memory), broker.unready, broker.prepare_metrics
        )
        self._metrics_address = str(self._monitoring.listen(parse_address(address)))
        _log.info("metrics and health are served at http://%s/", self._metrics_address)

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._interrupted)
        _reactor.callWhenRunning(self._start)
        _reactor.run(installSignalHandlers=False)
        self._workers.stop()
        pid_file.remove(self._pid_file)
        return self._status

    def _start(self) -> None:
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        started = ensureDeferred(self._broker.start())
        started.addCallbacks(lambda _: self._started(), self._start_failed)
        started.addErrback(self._start_failed)

    def _started(self) -> None:
        pid_file.write(self._pid_file)
        if self._ready_file is not None:
            temporary = Path(self._ready_file + ".tmp")
            described = {"pid": os.getpid(), **self._broker.describe()}
            if self._metrics_address:
                described["metrics.http.listener"] = self._metrics_address
            temporary.write_text(json.dumps(described) + "\n")
            temporary.replace(self._ready_file)
        self._broker.announce()
        tell(READY, "serving")
        Collecting(_reactor).begin()
        allocator = system_allocator()
        if allocator is not None:
            FreedMemory(_reactor, self._workers, allocator).begin()

    def _start_failed(self, failure: Failure) -> None:
        if self._is_stopping:
            return  # The stop has cancelled the start.
        if isinstance(failure.value, StartError | SettingError | OSError):
            self._fail(str(failure.value))
        else:
            _log.error("Starting the broker failed", exc_info=raised(failure))
            self._fail(f"unexpected {type(failure.value).__name__}: {failure.getErrorMessage()}")

    def _fail(self, why: str) -> None:
        """Stop the broker with exit status 1, because it cannot continue."""
        print(f"Stopping the broker: {one_line(why)}", file=sys.stderr)
        self._status = 1
        self._stop()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        _reactor.callFromThread(self._stop_on_signal, signal.Signals(number).name)

    def _stop_on_signal(self, name: str) -> None:
        if self._is_stopping:
            _log.warning("Received %s again: the process ends without waiting for the clean stop", name)
            self._end()
            return
        _log.info("Received %s: stopping the broker", name)
        self._stop()

    def _stop(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        overdue = threading.Timer(self._stop_ms_max / 1000, _end_overdue, (self._stop_ms_max,))
        overdue.daemon = True  # It does not keep a process alive that has stopped.
        overdue.start()
        tell(STOPPING, "handing leadership over and closing logs")
        stopped = ensureDeferred(self._broker.stop())
        stopped.addErrback(
            lambda failure: _log.error("Stopping the broker failed; it ends", exc_info=raised(failure))
        )
        stopped.addBoth(lambda _: self._end())

    def _end(self) -> None:
        if self._monitoring is not None:
            self._monitoring.stop()
        if self._ready_file is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._ready_file)
        if _reactor.running:
            _reactor.stop()


def _end_overdue(stop_ms_max: int) -> None:
    """End the process, whatever it waits for. Called in a thread of its own."""
    _log.error(
        "The broker has not stopped within %d ms (stop.timeout.ms): the process ends without waiting. Its "
        "next start recovers the logs",
        stop_ms_max,
    )
    logging.shutdown()
    os._exit(1)


def _date_ms() -> int:
    return time.time_ns() // 1_000_000
