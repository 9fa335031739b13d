#!/usr/bin/env bash
# Have two processes take a topic from each other, and count appends by the fenced one: none. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.takeovers.drill "$@"
