# shellcheck shell=bash
# The packages for a test: found in build/deb, or built when what they are made from has changed.
# And the tools of a test, found or installed. Sourced by vm.sh and chroot.sh.

# Everything that the packages are made from.
package_sources() {
    git ls-files -z --cached --others --exclude-standard -- \
        daemon ota debian systemd policies docs README.md CHANGELOG.md LICENSE pyproject.toml \
        .ci/steps/{deb,bundle,llama,model,talk,shlibs-ceiling}.sh .ci/lock .ci/patches |
        while IFS= read -r -d '' file; do
            if [[ -f $file ]]; then sha256sum "$file"; fi
        done | sha256sum
}

# built_packages ARCH: of another architecture only what depends on it is built, beside the rest.
built_packages() {
    local arch=$1 native now
    native=$(dpkg --print-architecture)
    now=$(package_sources)
    if [[ $arch != "$native" ]]; then built_packages "$native"; fi
    if [[ -f build/deb/sources-$arch && $(<"build/deb/sources-$arch") == "$now" ]] &&
        compgen -G "build/deb/stoker_*_$arch.deb" >/dev/null; then
        return 0
    fi
    DEB_ARCH=$arch .ci/steps/deb.sh --no-lintian
}

# test_tools "PACKAGE PROGRAM"...: the program (or file) shows that the package is there.
test_tools() {
    local pair missing=() PATH=$PATH:/usr/sbin:/sbin
    for pair in "$@"; do
        [[ -e ${pair#* } ]] || command -v "${pair#* }" >/dev/null || missing+=("${pair%% *}")
    done
    ((${#missing[@]})) || return 0
    say "Debian packages to install: ${missing[*]}"
    local -a as_root=()
    ((EUID == 0)) || as_root=(sudo)
    "${as_root[@]}" apt-get -q update >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 install "${missing[@]}" >&2
}
