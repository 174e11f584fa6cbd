#!/usr/bin/env bash
# "make fuzz" behind bootstrap: atheris into .venv on first use, then every entry of tests/fuzz.
# Where there is no wheel of atheris (no processor but x86-64, a newer Python, no network) it says
# so, and tests.fuzz changes good samples by itself. No other verb needs or installs it.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${STOKER_CACHE:?run it by make fuzz}"
readonly venv=$PWD/.venv lock=.ci/lock/fuzz.txt log=$STOKER_CACHE/logs/fuzz.log
readonly stamp=$venv/.stoker/fuzz

# shellcheck disable=SC2034 # talk.sh reads it
readonly program=fuzz
# shellcheck source=.ci/steps/talk.sh
. .ci/steps/talk.sh
# shellcheck source=.ci/steps/python.sh
. .ci/steps/python.sh

atheris() {
    local key
    key=$(hash_of "$lock")
    if [[ -f $stamp && $(<"$stamp") == "$key" ]]; then return 0; fi
    say "  install atheris into .venv …"
    mkdir -p "${log%/*}" "${stamp%/*}"
    if pip_install --require-hashes --only-binary :all: -r "$lock" >"$log" 2>&1 </dev/null; then
        printf '%s\n' "$key" >"$stamp"
        return 0
    fi
    say "fuzz: cannot install atheris for $("$venv/bin/python" -V) on $(uname -m), see $log"
    say "fuzz: going on without coverage, by changing good samples"
}

atheris
exec "$venv/bin/python" -m tests.fuzz "$@"
