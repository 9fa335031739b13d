#!/usr/bin/env bash
# Show the messages of a topic. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.console_consumer "$@"
