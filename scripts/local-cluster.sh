#!/usr/bin/env bash
# Run ZooKeeper and brokers on free loopback ports, until Ctrl-C or while a command runs. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
run_python -m holdfast_log.broker.tools.local_cluster "$@"
