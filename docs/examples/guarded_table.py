"""A SQLite table with one writer at a time, guarded by tokens (own API).

    python docs/examples/guarded_table.py localhost:9092 accounts accounts.sqlite

Each line of the input, such as `alice 70`, is an entry to write. Run the program twice: one writes, the other
waits for the lease `accounts`. A process that was paused, or cut off, does not know at once that another has
taken over, and SQLite knows nothing of Holdfast. So the table compares tokens: each grant of the lease has a
higher one than every grant before, and the table refuses a write with a lower token than it has seen.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator

from holdfast_log import FOR_EVER, Lease

SESSION_TIMEOUT_MS = 3000
GROUP = "guarded-tables"
SCHEMA = """
CREATE TABLE IF NOT EXISTS fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
RAISE = """
INSERT INTO fence VALUES (?, ?)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE excluded.token >= token
"""


class SupersededError(Exception):
    """The table has seen a higher token: another process owns it now."""


@contextlib.contextmanager
def guarded(database: sqlite3.Connection, resource: str, token: int) -> Iterator[None]:
    """A transaction that takes place only if no higher token has been seen. The token is compared and kept in
    the same transaction as the writes: between two transactions another process may take over."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        if database.execute(RAISE, (resource, token)).rowcount == 0:
            raise SupersededError(f"the table has seen a higher token than {token}")
        yield


def main(bootstrap: str, resource: str, path: str) -> None:
    """Wait for the lease, then write the lines of the input until another process takes over."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as database:
        database.executescript(SCHEMA)
        properties = {"bootstrap.servers": bootstrap}
        with Lease(
            properties, GROUP, [resource], wait_ms=FOR_EVER, session_timeout_ms=SESSION_TIMEOUT_MS
        ) as lease:
            token = lease.token(resource)
            with guarded(database, resource, token):  # From now on no earlier owner writes.
                count = database.execute("SELECT count(*) FROM entries").fetchone()[0]
            print(f"writing with token {token}, after {count} entries", flush=True)
            for line in sys.stdin:
                key, value = line.split()
                try:
                    with guarded(database, resource, token):
                        database.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", (key, value))
                except SupersededError as error:
                    print(f"refused {key}: {error}", flush=True)
                    return
                print(f"wrote {key}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
