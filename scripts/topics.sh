#!/usr/bin/env bash
# Create, list, describe, alter or delete topics. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.clients.tools.topics "$@"
