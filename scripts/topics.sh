#!/usr/bin/env bash
# Create, list, describe, alter or delete topics. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m clients.tools.topics "$@"
