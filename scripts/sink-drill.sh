#!/usr/bin/env bash
# Run a streaming query of Spark into Holdfast under faults, and count lost and duplicate rows: none. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_java
cd "$HOLDFAST_HOME"
run_python -m tests.pipeline.sink.drill "$@"
