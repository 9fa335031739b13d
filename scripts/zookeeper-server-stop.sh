#!/usr/bin/env bash
# Stop the ZooKeeper that was started from a properties file (default: config/zookeeper.properties).
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
. "$here/common.sh"
run_python -m holdfast_log.coordinator.tools.zookeeper_server stop "${1:-$here/../config/zookeeper.properties}"
