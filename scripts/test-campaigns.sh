#!/usr/bin/env bash
# Run in full the campaigns and matrices of which scripts/test.sh runs a part. See --help.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
    cat <<'END'
Usage: scripts/test-campaigns.sh [options of scripts/fault-matrix.sh]
       scripts/test-campaigns.sh --long [FOLDER...]
       scripts/test-campaigns.sh --pure-python [FOLDER...]

Runs the tests whose number of cases can be chosen with more cases than scripts/test.sh, every combination of
parameters where that one has each pair of values (tests/covering.py), the long tests that it leaves out, and every cell
of the fault matrix, and stops at the first failure. Then it runs the tests with nothing compiled. It needs what
scripts/test.sh installs, and takes far longer. docs/testing.md names what it runs beyond scripts/test.sh.

--long          run only the tests that scripts/test.sh leaves out (marked "campaign"): those of the folders of tests/
                that are named, or all

--pure-python   run only that last part: the tests in Python alone (HOLDFAST_PURE_PYTHON=1), folder by folder, those of
                tests/ that are named; without names all but compat, packaging and pipeline, whose time goes to other
                programs. A folder that fails does not stop the others. The brokers and clients that the tests start
                run in Python alone, too.

HOLDFAST_SEEDS           seeds of simulated clusters with three brokers, a multiple of 25 [1000]; scripts/test.sh has 25.
                         Other shapes have a share of them.
HOLDFAST_KILLS           how often a broker is killed under load, with and without flush.before.ack [50];
                         scripts/test.sh has 5
HOLDFAST_COMPAT_RECORDS  records that each stock client writes and reads with each codec [50000]; scripts/test.sh has
                         5000
HOLDFAST_FAULT_RECORDS   records that Holdfast's own clients write and read while each kind of fault strikes [200000];
                         scripts/test.sh has 40000
END
    exit 0
fi

# Run the tests of folders with nothing compiled, one folder after the other, and say which have failed.
test_in_python() {
    local folder failed=()
    if [[ $# -eq 0 ]]; then
        for folder in tests/*/; do
            folder=$(basename "$folder")
            case $folder in compat | packaging | pipeline | __pycache__) continue ;; esac
            set -- "$@" "$folder"
        done
    fi
    for folder in "$@"; do  # Status 5: a folder without tests, only with helpers for them.
        printf 'In Python alone: tests/%s\n' "$folder"
        (
            export HOLDFAST_PURE_PYTHON=1
            run_python -m pytest -q -n "$(nproc)" --dist worksteal "tests/$folder"
        ) || { [[ $? -eq 5 ]] || failed+=("$folder"); }
    done
    if [[ ${#failed[@]} -gt 0 ]]; then
        printf 'In Python alone these folders of tests/ have failed: %s\n' "${failed[*]}" >&2
        return 1
    fi
}

# Run the tests that scripts/test.sh leaves out, in all folders or in those that are named.
test_long() {
    (run_python -m pytest -n "$(nproc)" --dist worksteal -m campaign "${@/#/tests/}")
}

use_java
cd "$HOLDFAST_HOME"
case ${1:-} in
    --long)
        shift
        test_long "$@"
        exit
        ;;
    --pure-python)
        shift
        test_in_python "$@"
        exit
        ;;
esac
(
    export HOLDFAST_SEEDS=${HOLDFAST_SEEDS:-1000} HOLDFAST_KILLS=${HOLDFAST_KILLS:-50}
    export HOLDFAST_COMPAT_RECORDS=${HOLDFAST_COMPAT_RECORDS:-50000} HOLDFAST_ALL_COMBINATIONS=1
    export HOLDFAST_FAULT_RECORDS=${HOLDFAST_FAULT_RECORDS:-200000}
    run_python -m pytest -n "$(nproc)" --dist worksteal tests/sim/test_simulation.py tests/integration/test_kill.py \
        tests/compat/test_stock_clients.py tests/checker/test_planted_bugs.py tests/integration/test_client_faults.py
)
test_long
bash scripts/fault-matrix.sh "$@"
test_in_python
