"""File descriptors of the process: how many there are, and who may use how many."""

from __future__ import annotations

import logging
import resource

from broker.wiring.surroundings import Descriptors

_log = logging.getLogger(__name__)

_OWN_MAX = 192
_LOG_FILES_MAX = 65_536


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; the limit in force."""
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
    """Divide `limit` descriptors: some for the process itself, connections to other brokers and short uses by
    workers; half of the rest for files of logs; what is left for connections that clients open."""
    rest = limit - min(_OWN_MAX, limit // 4)
    log_files = min(rest // 2, _LOG_FILES_MAX)
    return Descriptors(limit, log_files, rest - log_files)
