#!/usr/bin/env bash
# Install what the tests need, then run every check that a change must pass. See --help.

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
    cat <<'END'
Usage: scripts/test.sh [pytest arguments]

Installs what it needs (scripts/install.sh --with-tests, kcat, Chromium and Prometheus if apt-get can install them, and a
second environment with kafka-python 2.x), then runs shellcheck, ruff, mypy and pytest, and stops at the first check that fails.
Arguments are passed to pytest: scripts/test.sh tests/protocol -k records
Without arguments the tests of appends and fetches run once more before, in Python alone (HOLDFAST_PURE_PYTHON).
On two cores, four tests run at a time; -n 0 runs them one by one.

The tests start ZooKeeper and brokers of their own, on free loopback ports, and stop them.
END
    exit 0
fi

# Create a second environment with the older major version of kafka-python, which many programs still use.
install_kafka_python_2() {
    local venv=$HOLDFAST_HOME/.venv-kafka-python-2 wanted='kafka-python>=2.3,<3'
    if [[ ! -f $venv/holdfast-fingerprint || $(<"$venv/holdfast-fingerprint") != "$wanted" ]]; then
        printf 'Installing kafka-python 2.x into %s\n' "$venv"
        "$python" -m venv --without-pip "$venv"
        "$python" -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check \
            "$wanted" crc32c lz4 python-snappy zstandard
        printf '%s\n' "$wanted" >"$venv/holdfast-fingerprint"
    fi
}

# Install the programs that some tests use: kcat, and a browser with its driver. Their tests are skipped without them.
install_programs() {
    local missing=() package
    command -v kcat >/dev/null || missing+=(kcat)
    { command -v chromium && command -v chromedriver; } >/dev/null || missing+=(chromium chromium-driver fonts-dejavu-core)
    [[ ${#missing[@]} -gt 0 ]] || return 0
    if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
        printf 'Not installed, so the tests that need them are skipped: %s. ' "${missing[*]}"
        printf 'On Debian: apt-get install %s\n' "${missing[*]}"
        return 0
    fi
    printf 'Installing %s\n' "${missing[*]}"
    apt-get update -qq || true
    for package in "${missing[@]}"; do
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
            printf '%s cannot be installed: the tests that need it are skipped.\n' "$package"
    done
}

# Unpack Debian's Prometheus into the checkout: installing the package would have the machine run one as a service.
unpack_prometheus() {
    { command -v prometheus && command -v promtool; } >/dev/null && return
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 0
    local package=$HOLDFAST_HOME/.prometheus/package
    mkdir -p "$package"
    if [[ $(id -u) -eq 0 ]]; then apt-get update -qq || true; fi
    if ! (cd "$package" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb ..) >/dev/null; then
        printf 'Prometheus cannot be downloaded: the tests that need it are skipped.\n'
    fi
    rm -rf "$package"
}

bash "$HOLDFAST_HOME/scripts/install.sh" --with-tests --quiet
python=$(find_python)
# Only the tests need these two, so they are installed while the checks run.
install_kafka_python_2 &
kafka_python_2=$!
export PATH=$HOLDFAST_HOME/.prometheus/usr/bin:$PATH
{
    install_programs
    unpack_prometheus
} &
programs=$!
use_java

work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-checks.XXXXXX")
mypy=
# The first check that fails ends the others.
trap 'rm -rf "$work"; [[ -z $mypy ]] || kill "$mypy" 2>/dev/null || true' EXIT
cd "$HOLDFAST_HOME"
# Let Python cache compiled modules: the tests start hundreds of brokers and tools.
unset PYTHONDONTWRITEBYTECODE
# mypy uses one core for a minute; what it prints is shown when it is waited for.
"$python" -m mypy >"$work/mypy" 2>&1 &
mypy=$!
printf 'shellcheck\n'
"$(dirname "$python")/shellcheck" scripts/*.sh .ci/run
printf 'ruff check\n'
"$python" -m ruff check
printf 'ruff format --check\n'
"$python" -m ruff format --check
# Python and pytest compile each module once here; several processes at a time would each compile all of them. The time of
# this file is that of the last run.
compiled=var/tests-compiled
if [[ $# -eq 0 && (! -e $compiled || -n $(find tests benchmarks holdfast_log -name '*.py' -newer "$compiled")) ]]; then
    printf 'pytest --collect-only\n'
    mkdir -p var
    touch "$work/now"
    (run_python -m pytest --collect-only -qq -p no:cacheprovider) >"$work/collected" 2>&1 ||
        { tail -n 100 "$work/collected"; exit 1; }
    mv "$work/now" "$compiled"
fi
# Four at a time on two cores: tests that start brokers or Java mostly wait.
at_a_time=$(($(nproc) * 2))
if [[ $# -eq 0 ]]; then
    printf 'pytest, appends and fetches with nothing compiled\n'
    (
        export HOLDFAST_PURE_PYTHON=1
        run_python -m pytest -n "$at_a_time" --dist worksteal tests/broker/replication
    )
fi
printf 'mypy\n'
wait "$mypy" || { cat "$work/mypy"; exit 1; }
mypy=
cat "$work/mypy"
wait "$kafka_python_2"
wait "$programs"
trap - EXIT
rm -rf "$work"
run_python -m pytest -n "$at_a_time" --dist worksteal "$@"
