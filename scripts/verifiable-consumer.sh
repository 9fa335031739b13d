#!/usr/bin/env bash
# Read as a member of a group, and report what was read in JSON. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.verifiable_consumer "$@"
