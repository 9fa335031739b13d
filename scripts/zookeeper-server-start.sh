#!/usr/bin/env bash
# Start ZooKeeper:  zookeeper-server-start.sh [-daemon] config/zookeeper.properties [--override key=value]...
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.coordinator.tools.zookeeper_server start "$@"
