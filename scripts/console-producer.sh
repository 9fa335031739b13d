#!/usr/bin/env bash
# Write each line of standard input, or of a file, to a topic. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.console_producer "$@"
