#!/usr/bin/env bash
# Stop what cluster-start.sh has started. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.broker.tools.background_cluster stop "$@"
