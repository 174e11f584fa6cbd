#!/usr/bin/env bash
# "make vm": sees to qemu and mmdebstrap, builds the packages when their sources changed, and runs
# the field test (tests/system/vm). Arguments go there; docs/field-test.md tells the rest.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly stamp=build/deb/sources.sha256
: "${STOKER_CACHE:?run it by make vm}"

# shellcheck disable=SC2034 # talk.sh reads it
readonly program=vm
# shellcheck source=.ci/steps/talk.sh
. .ci/steps/talk.sh

# The name of a package, and a program that shows that it is there.
readonly -a wanted=(
    "qemu-system-x86 qemu-system-x86_64"
    "mmdebstrap mmdebstrap"
    "e2fsprogs mke2fs"
    "fakeroot fakeroot"
    "debian-archive-keyring /usr/share/keyrings/debian-archive-keyring.gpg"
)

tools() {
    local pair missing=() PATH=$PATH:/usr/sbin:/sbin
    for pair in "${wanted[@]}"; do
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

# Everything that the packages are made from.
sources() {
    git ls-files -z --cached --others --exclude-standard -- \
        daemon ota debian systemd policies docs README.md CHANGELOG.md LICENSE pyproject.toml \
        .ci/steps/deb.sh .ci/steps/llama.sh .ci/steps/model.sh .ci/steps/talk.sh .ci/lock |
        while IFS= read -r -d '' file; do
            if [[ -f $file ]]; then sha256sum "$file"; fi
        done | sha256sum
}

packages() {
    local now
    now=$(sources)
    if [[ -f $stamp && $(<"$stamp") == "$now" ]] && compgen -G 'build/deb/stoker_*.deb' >/dev/null
    then
        return 0
    fi
    .ci/steps/deb.sh --no-lintian
    printf '%s\n' "$now" >"$stamp"
}

main() {
    # --debs DIR tests packages made elsewhere; --list and --help need none.
    case " $* " in
        *" --list "* | *" --help "* | *" -h "*) ;;
        *" --debs "*) tools ;;
        *)
            tools
            packages
            ;;
    esac
    PATH=$PATH:/usr/sbin:/sbin exec python -m tests.system.vm "$@"
}

main "$@"
