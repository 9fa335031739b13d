#!/usr/bin/env bash
# Check whether a cluster is healthy; if not, say what to do. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.cluster_health "$@"
