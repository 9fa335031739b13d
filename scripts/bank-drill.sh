#!/usr/bin/env bash
# Transfer money by transactions while their coordinator is killed every ten seconds, and audit the sum. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.bank.drill "$@"
