"""One broker, or with `broker.processes` several of them, until SIGTERM or SIGINT.

`python -m holdfast_log.broker config/server.properties [--override key=value]…`
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from holdfast_log.broker.log.settings import log_directories
from holdfast_log.broker.process import supervisor
from holdfast_log.broker.process.derived_settings import (
    process_count,
    settings_of_processes,
    this_machine,
    unserved_directories,
)
from holdfast_log.broker.process.log_file import open_log_file, server_name
from holdfast_log.broker.process.log_lines import log_to, log_to_output, log_uncaught_errors
from holdfast_log.broker.settings.command_line import read_settings
from holdfast_log.clients.settings import SettingError, Settings


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="server-start.sh",
        usage="%(prog)s [-daemon] properties [--override key=value]... [--ready-file path] [--log-level …]",
        description="Run a broker until SIGTERM or SIGINT. With -daemon, which must be the first argument, "
        "the broker moves to the background once it serves, and logs to $LOG_DIR/server-ID.log (var/log/…).",
    )
    parser.add_argument("properties", help="file of the broker's settings, in the format of Java properties")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="key=value",
        help="setting that overrides the file's; may be given more than once",
    )
    parser.add_argument(
        "--ready-file",
        metavar="path",
        help="file that the broker writes once it serves: its id, process id, cluster and listeners, as JSON",
    )
    parser.add_argument(
        "--log-dir",
        metavar="path",
        help="directory of the broker's log file, server-ID.log, and of what Python prints, server-ID.out; "
        "both are rotated; default: the output",
    )
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="default: INFO"
    )
    return parser.parse_args()


def _for_each_process(arguments: argparse.Namespace) -> list[str]:
    """The arguments of each broker's process, without what differs between them."""
    given = [arguments.properties, "--log-level", arguments.log_level]
    for override in arguments.override:
        given += ["--override", override]
    if arguments.log_dir is not None:
        given += ["--log-dir", arguments.log_dir]
    return given


def _warn_of_unserved(settings: Settings, count: int) -> None:
    for path in unserved_directories(settings, count):
        logging.getLogger(__name__).warning(
            "The broker whose data is in %s does not run: broker.processes is %d. Before you lower the "
            "number, move its partitions to other brokers (reassign-partitions.sh)",
            path,
            count,
        )


def _warn_of_unknown(settings: Settings) -> None:
    for key, closest in settings.unknown.items():
        hint = f"; did you mean {closest}?" if closest else ""
        logging.getLogger(__name__).warning("Ignoring unknown setting %s%s", key, hint)


def main() -> int:
    arguments = _arguments()
    logging.getLogger().setLevel(arguments.log_level)
    log_to_output()
    log_uncaught_errors()
    # The broker logs the state of the session itself; kazoo would also log every failed attempt to connect.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    try:
        settings = read_settings(arguments.properties, arguments.override)
        count = process_count(settings)
        overrides = settings_of_processes(settings, count, this_machine()) if count > 1 else []
    except SettingError as error:
        print(f"Cannot start: {error}", file=sys.stderr)
        return 1
    if arguments.log_dir is not None:
        try:
            name = server_name("supervisor" if overrides else "server", settings["broker.id"])
            log_file = open_log_file(Path(arguments.log_dir), name, os.environ)
            print(f"The log of process {os.getpid()} is {log_file.path}", flush=True)
            log_file.output.take()
        except (OSError, ValueError) as error:
            print(f"Cannot start: the log file cannot be opened: {error}", file=sys.stderr)
            return 1
        log_to(log_file)
    _warn_of_unserved(settings, count)
    if overrides:
        directories = log_directories(settings)
        return supervisor.run(_for_each_process(arguments), overrides, directories, arguments.ready_file)
    _warn_of_unknown(settings)
    # Imported here: the first import of Twisted installs a reactor, and tests install another one.
    from twisted.internet import epollreactor

    epollreactor.install()
    from holdfast_log.broker.process.process import run

    return run(settings, arguments.ready_file)


if __name__ == "__main__":
    sys.exit(main())
