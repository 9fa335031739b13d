#!/usr/bin/env bash
# Show or change the settings of topics and brokers. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.configs "$@"
