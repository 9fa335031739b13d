#!/usr/bin/env bash
# Run in full the campaigns and matrices of which scripts/test.sh runs a part. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
    cat <<'END'
Usage: scripts/test-campaigns.sh

Runs the tests whose number of cases can be chosen with more cases than scripts/test.sh, every combination of
parameters where that one has each pair of values (tests/covering.py), and every cell of the fault matrix. Stops at the
first failure. It needs what scripts/test.sh installs, and takes far longer.

HOLDFAST_SEEDS           seeds of simulated clusters with three brokers, a multiple of 50 [1000]; scripts/test.sh has 50.
                         Other shapes have a share of them.
HOLDFAST_KILLS           how often a broker is killed under load, with and without flush.before.ack [50];
                         scripts/test.sh has 10
HOLDFAST_COMPAT_RECORDS  records that each stock client writes and reads with each codec [50000]; scripts/test.sh has
                         5000
END
    exit 0
fi

use_java
cd "$HOLDFAST_HOME"
export HOLDFAST_SEEDS=${HOLDFAST_SEEDS:-1000} HOLDFAST_KILLS=${HOLDFAST_KILLS:-50}
export HOLDFAST_COMPAT_RECORDS=${HOLDFAST_COMPAT_RECORDS:-50000} HOLDFAST_ALL_COMBINATIONS=1
(run_python -m pytest -n "$(nproc)" --dist worksteal tests/sim/test_simulation.py tests/integration/test_kill.py \
    tests/compat/test_stock_clients.py)
bash scripts/fault-matrix.sh "$@"
