#!/usr/bin/env bash
# Run in full the campaigns of which scripts/test.sh runs a part. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
    cat <<'END'
Usage: scripts/test-campaigns.sh

Runs the tests whose number of cases can be chosen with more cases than scripts/test.sh, and every cell of the fault
matrix, and stops at the first failure. It needs what scripts/test.sh installs, and takes far longer.

HOLDFAST_SEEDS  seeds of simulated clusters with three brokers, a multiple of 50 [1000]; scripts/test.sh has 100. Other
                shapes have a share of them.
HOLDFAST_KILLS  how often a broker is killed under load, with and without flush.before.ack [50]; scripts/test.sh has 10
END
    exit 0
fi

use_java
cd "$HOLDFAST_HOME"
export HOLDFAST_SEEDS=${HOLDFAST_SEEDS:-1000} HOLDFAST_KILLS=${HOLDFAST_KILLS:-50}
(run_python -m pytest -n "$(nproc)" --dist worksteal tests/sim/test_simulation.py tests/integration/test_kill.py)
bash scripts/fault-matrix.sh "$@"
