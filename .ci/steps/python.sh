# shellcheck shell=bash
# The virtual environment: Debian's Python with its gi and pydbus, the rest pinned by hash.
# Sourced by bootstrap.

# once NAME KEY COMMAND...: runs the command unless it ran with this key in this environment.
once() {
    local stamp=$venv/.stoker/$1 key=$2
    shift 2
    if [[ -f $stamp && $(<"$stamp") == "$key" ]]; then return 0; fi
    "$@"
    mkdir -p "$venv/.stoker"
    printf '%s\n' "$key" >"$stamp"
}

# No build isolation anywhere: pip would fetch unpinned build backends into it.
pip_install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
        --no-build-isolation "$@"
}

hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

python_environment() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "cannot use $python: $("$python" -V); Python 3.11 or later is needed"
    # An environment cannot be moved and not carried to another Python: make it anew then.
    once made "$root $("$python" -V)" make_environment
    once build "$(hash_of .ci/lock/build.txt)" \
        logged "install the build tools into .venv" "$STOKER_CACHE/logs/build-tools.log" \
        pip_install --require-hashes -r .ci/lock/build.txt
    once packages "$(hash_of .ci/lock/runtime.txt .ci/lock/dev.txt)" \
        logged "install the Python packages" "$STOKER_CACHE/logs/packages.log" \
        pip_install --require-hashes -r .ci/lock/runtime.txt -r .ci/lock/dev.txt
}

make_environment() {
    rm -rf "$venv"
    logged "make .venv from $python" "$STOKER_CACHE/logs/venv.log" \
        "$python" -m venv --system-site-packages "$venv"
}

python_project() {
    once project "$(hash_of pyproject.toml daemon/stoker/__init__.py)" \
        logged "install this checkout, editable" "$STOKER_CACHE/logs/project.log" \
        pip_install --no-deps --no-index -e .
}
