#!/usr/bin/env bash
# Measure what thousands of unfinished TLS handshakes and SASL dialogues cost a client at work. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.hostile.slow_strangers "$@"
