#!/usr/bin/env bash
# "make chroot": installs the packages into a clean Debian in a chroot and tries them there
# (tests/system/chroot); ARCH=arm64 does it under qemu-user. docs/field-test.md tells the rest.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${STOKER_CACHE:?run it by make chroot}"

# shellcheck disable=SC2034 # talk.sh reads it
readonly program=chroot
# shellcheck source=.ci/steps/talk.sh
. .ci/steps/talk.sh
# shellcheck source=.ci/steps/packages.sh
. .ci/steps/packages.sh

main() {
    local arch=$1
    shift
    local -a wanted=(
        "mmdebstrap mmdebstrap"
        "debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg"
    ) as_root=()
    if [[ $arch != "$(dpkg --print-architecture)" ]]; then
        wanted+=("qemu-user-static /usr/bin/qemu-aarch64-static")
    else
        wanted+=("autopkgtest autopkgtest")
        if [[ $arch == amd64 ]]; then
            wanted+=("qemu-user-static /usr/bin/qemu-x86_64-static")
        fi
    fi
    test_tools "${wanted[@]}"
    built_packages "$arch"
    ((EUID == 0)) || as_root=(sudo)
    exec "${as_root[@]}" env PATH="$PATH:/usr/sbin:/sbin" STOKER_CACHE="$STOKER_CACHE" \
        PYTHONDONTWRITEBYTECODE=1 python -m tests.system.chroot --arch "$arch" "$@"
}

main "$@"
