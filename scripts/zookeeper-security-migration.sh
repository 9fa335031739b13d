#!/usr/bin/env bash
# Change who may use the znodes of a cluster:  zookeeper-security-migration.sh --zookeeper.acl secure. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.broker.tools.zookeeper_security "$@"
