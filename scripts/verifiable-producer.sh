#!/usr/bin/env bash
# Write numbers, and report each in JSON. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.verifiable_producer "$@"
