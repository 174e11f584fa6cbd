# shellcheck shell=bash
# How the build scripts talk: to people on standard error, with the log of what went wrong.
# Sourced; the script says who it is in $program.

say() { printf '%s\n' "$*" >&2; }
die() {
    printf "${program:?}: %s\n" "$@" >&2
    exit 1
}

# The last lines of a log: what a person needs to see when a step failed.
fail_with_log() {
    say "" "--- the end of $2"
    tail -n 40 "$2" >&2
    die "cannot $1; the whole log is $2"
}

# Runs a command with its output in a log, and says how long it took.
# logged WHAT LOG COMMAND...
logged() {
    local what=$1 log=$2 start=$SECONDS
    shift 2
    say "  $what …"
    "$@" >"$log" 2>&1 </dev/null || fail_with_log "$what" "$log"
    say "  $what: done in $((SECONDS - start)) s"
}
