#!/usr/bin/env bash
# Inject faults into real brokers and ZooKeeper under load, and check every record. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.faults.matrix "$@"
