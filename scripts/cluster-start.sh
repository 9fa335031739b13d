#!/usr/bin/env bash
# Start ZooKeeper and brokers in the background, on free loopback ports:  cluster-start.sh [-n 3]. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
run_python -m holdfast_log.broker.tools.background_cluster start "$@"
