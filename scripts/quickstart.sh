#!/usr/bin/env bash
# The tour: install, start a cluster, write, read and copy real data, check every count, stop everything. See --help.

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [[ $# -gt 0 ]]; then
    cat <<'END'
Usage: scripts/quickstart.sh

Installs what is needed into .venv, starts ZooKeeper and a broker on free loopback ports, writes the 336,776
flights that left New York in 2013 to a topic, reads them with Holdfast's consumer and with a stock client, copies
them to a second topic by a Spark streaming query that writes each row exactly once, keeps the copy as Parquet with
Spark, and checks every count. It stops everything that it has started, also after Ctrl-C. Spark's output stays in
var/quickstart.
END
    [[ $1 == --help || $1 == -h ]]
    exit
fi

bash "$HOLDFAST_HOME/scripts/install.sh" --with-examples --quiet
use_java
python=$(find_python)
run_python -m holdfast_log.broker.tools.local_cluster -- "$python" -P -m holdfast_log.pipeline.examples.quickstart
