#!/usr/bin/env bash
# "make vm": sees to qemu and mmdebstrap, builds the packages when their sources changed, and runs
# the field test (tests/system/vm). Arguments go there; docs/field-test.md tells the rest.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${STOKER_CACHE:?run it by make vm}"

# shellcheck disable=SC2034 # talk.sh reads it
readonly program=vm
# shellcheck source=.ci/steps/talk.sh
. .ci/steps/talk.sh
# shellcheck source=.ci/steps/packages.sh
. .ci/steps/packages.sh

# The name of a package, and a program that shows that it is there.
readonly -a wanted=(
    "qemu-system-x86 qemu-system-x86_64"
    "mmdebstrap mmdebstrap"
    "e2fsprogs mke2fs"
    "fakeroot fakeroot"
    "debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg"
)

# The image is made by running its own programs; qemu then plays an x86-64 machine.
native() {
    local arch
    arch=$(dpkg --print-architecture)
    [[ $arch == amd64 ]] ||
        die "cannot run on $arch: the field test needs an amd64 machine; make chroot works here"
}

main() {
    # --list and --help need nothing; --debs DIR tests packages made elsewhere.
    if [[ " $* " != *" --list "* && " $* " != *" --help "* && " $* " != *" -h "* ]]; then
        native
        test_tools "${wanted[@]}"
        [[ " $* " == *" --debs "* ]] || built_packages amd64
    fi
    PATH=$PATH:/usr/sbin:/sbin exec python -m tests.system.vm "$@"
}

main "$@"
