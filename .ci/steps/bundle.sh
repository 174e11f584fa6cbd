# shellcheck shell=bash
# What the packages bundle of Python (.ci/lock/bundled.txt), as a plain tree for $arch, kept in the
# cache. Ready wheels are unpacked and nothing is run, so any machine makes the tree of any
# architecture. dpkg-buildpackage then works without network. Sourced by deb.sh.

# Debian 12's and 13's. Compiled modules carry their Python in their names
# (core.cpython-311-x86_64-linux-gnu.so), so that those of both lie side by side; cryptography's one
# is for every Python (abi3).
readonly -a bundle_pythons=(3.11 3.13)

# From the newest glibc that Debian 12 (2.36) can do with.
readonly -a bundle_platforms=(manylinux_2_34 manylinux_2_28 manylinux_2_17 manylinux2014
    manylinux_2_5 manylinux1)

bundle_key() { cat .ci/lock/bundled.txt .ci/steps/bundle.sh | sha256sum | cut -c1-16; }

bundle_dir() { printf '%s\n' "$STOKER_CACHE/bundled/$(bundle_key)-$arch"; }

# Builds into a temporary folder and renames it when it is whole.
bundle() {
    local dir=$1 log=$STOKER_CACHE/logs/bundled.log python
    if [[ -d $dir ]]; then return 0; fi
    mkdir -p "${dir%/*}" "$STOKER_CACHE/logs"
    rm -rf "${dir%/*}"/making.* # left by a killed one: we hold the lock
    work=$(mktemp -d "${dir%/*}/making.XXXXXX")
    chmod 755 "$work"
    trap 'rm -rf "$work"' EXIT
    for python in "${bundle_pythons[@]}"; do
        logged "unpack what Python $python lacks, for $arch" "$log" \
            bundle_wheels "$python" "$work/$python"
        bundle_prune "$work/$python"
    done
    bundle_join "$work/out"
    mv "$work/out" "$dir"
    rm -rf "$work"
    trap - EXIT
}

bundle_wheels() {
    local python=$1 target=$2 machine=x86_64
    local -a platforms
    if [[ $arch == arm64 ]]; then machine=aarch64; fi
    platforms=("${bundle_platforms[@]/#/--platform=}")
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile --no-deps \
        --require-hashes --only-binary=:all: "${platforms[@]/%/_$machine}" --implementation cp \
        --python-version "$python" --target "$target" -r .ci/lock/bundled.txt
}

# Modules are kept, and of each wheel's facts its name and version, for those who look for old
# versions. The licences are in debian/copyright. Of cffi only the compiled half is imported.
bundle_prune() {
    local info
    rm -rf "$1/bin" "$1/cffi" "$1/bsdiff4/test_all.py" "$1/bsdiff4/cli.py"
    find "$1" \( -name '*.pyi' -o -name py.typed \) -delete
    for info in "$1"/*.dist-info; do
        sed -n -E '/^$/q; /^(Metadata-Version|Name|Version):/p' "$info/METADATA" >"$1/facts"
        rm -rf "$info"
        install -D -m 644 "$1/facts" "$info/METADATA"
    done
    rm "$1/facts"
    find "$1" -type f -exec chmod 644 {} +
}

# The trees of all Pythons in one: a file that two of them have must be the same.
bundle_join() {
    local out=$1 python file
    for python in "${bundle_pythons[@]}"; do
        while IFS= read -r -d '' file; do
            if [[ -f $out/$file ]]; then
                cmp -s "$work/$python/$file" "$out/$file" ||
                    die "cannot bundle $file: Python ${bundle_pythons[0]} and $python need different ones"
            else
                install -D -m 644 "$work/$python/$file" "$out/$file"
            fi
        done < <(cd "$work/$python" && find . -type f -printf '%P\0')
    done
}
