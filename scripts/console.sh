#!/usr/bin/env bash
# Show a cluster in a browser: brokers, topics, messages, groups, owners, settings. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
run_python -m holdfast_log.console.main "$@"
