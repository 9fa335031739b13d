"""Prints the record of a query: which run writes it, what was committed, and counts since it began.

python -m holdfast_log.pipeline.sink.report BOOTSTRAP QUERY-ID, or with the jobKey of a batch write and --job.
"""

from __future__ import annotations

import argparse
import json
import sys

from holdfast_log.pipeline.sink.cluster import SinkCluster
from holdfast_log.pipeline.sink.state import QueryState, job_record_name
from holdfast_log.pipeline.sink.store import QueryStore


def query_record(bootstrap: str, query: str) -> QueryState | None:
    """The record of a query; None if the query has written nothing. Raises the errors of the clients."""
    client = {"bootstrap.servers": bootstrap}
    cluster = SinkCluster(client)
    try:
        return QueryStore(cluster, client).read(query)
    finally:
        cluster.close()


def main() -> int:
    """Returns 1 if there is no record."""
    parser = argparse.ArgumentParser(prog="python -m holdfast_log.pipeline.sink.report", description=__doc__)
    parser.add_argument("bootstrap", help="address of a broker, host:port")
    parser.add_argument("query", help="id of a streaming query, or a jobKey")
    parser.add_argument("--job", action="store_true", help="the name is a jobKey")
    given = parser.parse_args()
    name = job_record_name(given.query) if given.job else given.query
    record = query_record(given.bootstrap, name)
    if record is None:
        print(f"{name}: nothing was written under this name", file=sys.stderr)
        return 1
    print(json.dumps(json.loads(record.encode()), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
