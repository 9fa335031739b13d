#!/usr/bin/env bash
# Build the documentation as a site. See --help.

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
Usage: scripts/docs.sh [--output DIRECTORY] [--serve]

Builds the pages of docs/ as a site, into var/site or DIRECTORY: open index.html there with a browser. A broken link
ends the script with status 1. The pages load nothing from other hosts, and their search works without a server.

  --output DIRECTORY   where the site is written; what is there is replaced
  --serve              serve it on 127.0.0.1:8000 instead, and build it again whenever a page changes

What it needs is installed at the first run: pip install 'holdfast-log[docs]'.
END
}

output=$HOLDFAST_HOME/var/site serve=false
while [[ $# -gt 0 ]]; do
    case $1 in
        --output) [[ $# -gt 1 ]] || fail "--output needs a directory"; output=$2; shift ;;
        --serve) serve=true ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; fail "unknown option: $1" ;;
    esac
    shift
done

python=$(find_python)
export PYTHONPATH=$HOLDFAST_HOME${PYTHONPATH:+:$PYTHONPATH}
# The theme's makers announce their next product at each run.
export NO_MKDOCS_2_WARNING=true
if ! "$python" -c 'import material, mkdocs, mkdocstrings_handlers.python' 2>/dev/null; then
    "$python" -m pip install --quiet --disable-pip-version-check --editable "${HOLDFAST_HOME}[docs]"
fi
"$python" "$HOLDFAST_HOME/docs/making/drawings.py" >/dev/null
if [[ $serve == true ]]; then
    exec "$python" -m mkdocs serve --config-file "$HOLDFAST_HOME/mkdocs.yml" --dev-addr 127.0.0.1:8000
fi
mkdir -p "$output"
"$python" -m mkdocs build --quiet --strict --clean --config-file "$HOLDFAST_HOME/mkdocs.yml" \
    --site-dir "$(cd "$output" && pwd)"
printf 'The site is in %s: open %s/index.html\n' "$output" "$output"
