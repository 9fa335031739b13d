#!/usr/bin/env bash
# Strike brokers and ZooKeeper of real clusters that are written to, and count what became of records. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.faults.matrix "$@"
