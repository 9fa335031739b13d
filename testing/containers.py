"""A broker with its ZooKeeper in one container, for testcontainers.

The image is that of config/container/Dockerfile. Needs the package testcontainers and a container engine, and
of Holdfast's extras none.
"""

from __future__ import annotations

import shlex
import tarfile
import time
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Self

from holdfast_log.broker.tools.broker_process import known_brokers

try:
    from testcontainers.core.container import DockerContainer
except ImportError:
    raise ImportError(
        "HoldfastContainer needs the package testcontainers, which this Python does not have: "
        "pip install testcontainers"
    ) from None

PORT = 9092
"""The port in the container at which clients connect."""
START_TIMEOUT_S = 120.0
_INNER_PORT = 19092
_ZOOKEEPER_PORT = 2181
_HOME = "/var/lib/holdfast"
_SCRIPT, _GO = "start.sh", "start"
"""Files in the container: what to run, and a file that is there once the script is complete."""
_POLL_S = 0.1
_PROPERTIES = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class HoldfastContainer(DockerContainer):
    """A container with a ZooKeeper server and one broker. Needs a container engine.

        with HoldfastContainer("holdfast") as holdfast:
            Producer({"bootstrap.servers": holdfast.get_bootstrap_server()})

    `image` is the tag under which the Dockerfile was built. `properties` are settings of the broker. Further
    arguments are those of DockerContainer. Clients on this machine reach the broker, not other containers.
    """

    def __init__(
        self, image: str = "holdfast", *, properties: Mapping[str, str] | None = None, **arguments: Any
    ) -> None:
        super().__init__(image, **arguments)
        self.properties = dict(properties or {})
        self.with_exposed_ports(PORT)
        # The address to advertise is known once the container runs. Until then it waits for the script.
        self.with_command([f"until [ -f {_HOME}/{_GO} ]; do sleep 0.1; done; . {_HOME}/{_SCRIPT}"])

    def get_bootstrap_server(self) -> str:
        """host:port of the broker for clients, as `bootstrap.servers`. The container must run."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(PORT)}"

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Start the container, and return once the broker serves. Raises TimeoutError and RuntimeError, with
        the end of the container's log, if it does not."""
        self.with_kwargs(**{**self._kwargs, "entrypoint": ["/bin/sh", "-c"]})
        super().start()
        try:
            self._put({_SCRIPT: start_script(self.get_bootstrap_server(), self.properties), _GO: ""})
            self._wait_ready(timeout_s)
        except BaseException:
            self.stop()
            raise
        return self

    def _put(self, files: Mapping[str, str]) -> None:
        """Write files to the broker's directory in the container, in this order."""
        with BytesIO() as packed:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for name, text in files.items():
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mode = len(text.encode()), 0o644
                    archive.addfile(entry, BytesIO(text.encode()))
            self.get_wrapped_container().put_archive(_HOME, packed.getvalue())

    def _wait_ready(self, timeout_s: float) -> None:
        host, port = self.get_container_host_ip(), int(self.get_exposed_port(PORT))
        deadline = time.monotonic() + timeout_s
        while not known_brokers(host, port):
            container = self.get_wrapped_container()
            container.reload()
            if container.status not in ("created", "running"):
                raise RuntimeError(
                    f"the container {container.status} before its broker served:\n{self._log()}"
                )
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the broker in the container at {host}:{port} does not serve after {timeout_s:.0f} s:\n"
                    f"{self._log()}"
                )
            time.sleep(_POLL_S)

    def _log(self) -> str:
        printed, complained = self.get_logs()
        text: str = (printed + complained).decode(errors="replace")
        return text[-3000:]


def start_script(
    advertised: str,
    properties: Mapping[str, str] | None = None,
    *,
    home: str = _HOME,
    port: int = PORT,
    inner_port: int = _INNER_PORT,
    zookeeper_port: int = _ZOOKEEPER_PORT,
) -> str:
    """The shell script that the container runs: ZooKeeper in the background, then the broker.

    Clients reach the broker at `advertised` (host:port); it reaches itself on loopback, where the other
    address need not exist. `home` is the directory for data, and the ports are those in the container.
    """
    zookeeper = {
        "dataDir": f"{home}/zookeeper",
        "clientPort": str(zookeeper_port),
        "clientPortAddress": "127.0.0.1",
    }
    broker = {
        "listeners": f"INSIDE://127.0.0.1:{inner_port},OUTSIDE://0.0.0.0:{port}",
        "advertised.listeners": f"INSIDE://127.0.0.1:{inner_port},OUTSIDE://{advertised}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
        "log.dirs": f"{home}/data",
        **_PROPERTIES,
        **(properties or {}),
    }
    return (
        f"set -e\n"
        f"{shlex.join(['holdfast', 'zookeeper', '--daemon', *_overrides(zookeeper)])}\n"
        f"exec {shlex.join(['holdfast', 'server', *_overrides(broker)])}\n"
    )


def _overrides(settings: Mapping[str, str]) -> list[str]:
    return [f"--override={key}={value}" for key, value in settings.items()]
