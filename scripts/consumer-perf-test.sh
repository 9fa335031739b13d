#!/usr/bin/env bash
# Measure how fast messages are read. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.consumer_perf_test "$@"
