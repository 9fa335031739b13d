"""File descriptors of the process: how many there are, and how they are divided."""

from __future__ import annotations

import logging
import resource

from holdfast_log.broker.wiring.surroundings import Descriptors

_log = logging.getLogger(__name__)

_OWN_MAX = 192
_LOG_FILES_MAX = 65_536


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit. Returns the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            _log.info("the limit of open files is raised from %d to %d", soft, hard)
            soft = hard
        except (OSError, ValueError) as error:
            _log.warning("the limit of open files stays at %d: %s", soft, error)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def shares(limit: int) -> Descriptors:
    """Divide `limit` descriptors. The process itself, connections to other brokers and short uses by worker
    threads get some. Log files get half of the rest, up to a maximum; connections get what is left."""
    rest = limit - min(_OWN_MAX, limit // 4)
    log_files = min(rest // 2, _LOG_FILES_MAX)
    return Descriptors(limit, log_files, rest - log_files)
