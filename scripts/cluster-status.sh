#!/usr/bin/env bash
# Show the brokers of the cluster that cluster-start.sh started, and which of them have ended. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.broker.tools.background_cluster status "$@"
