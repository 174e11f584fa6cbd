# shellcheck shell=bash
# Finds what is missing of the system's packages and installs only that. Sourced by bootstrap.

# Package, and the reason a person reads before sudo asks for a password.
readonly -a debian_wanted=(
    "bsdiff           bspatch, which applies exported windows of deltas in the tests"
    "ca-certificates  package downloads over TLS"
    "cmake            builds llama.cpp"
    "dbus             the bus itself, and the private one of development and tests"
    "g++              builds llama.cpp"
    "libglib2.0-bin   gdbus, in the walk-through and the examples"
    "libsystemd-dev   sd-bus headers for the C example"
    "make             the verbs"
    "mosquitto        the MQTT broker of the fleet tests"
    "ninja-build      builds llama.cpp in parallel"
    "patch            mends llama.cpp (.ci/patches)"
    "pkg-config       finds the headers of the C example"
    "python3          runs everything"
    "python3-gi       GLib's main loop and GDBus"
    "python3-pydbus   the D-Bus connection"
    "python3-venv     the environment in .venv"
    "systemd          busctl, in the walk-through and the examples"
    "util-linux       flock: one bootstrap at a time"
)

# Only for "make test": large, and nobody needs them to see the agent run.
readonly -a debian_wanted_by_tests=(
    "chromium         looks at the page that stokerctl report writes"
)

# debian_packages [tests]
debian_packages() {
    local -a wanted=("${debian_wanted[@]}")
    if [[ ${1:-} == tests ]]; then wanted+=("${debian_wanted_by_tests[@]}"); fi
    if ! command -v dpkg-query >/dev/null; then
        other_distribution
        return
    fi
    local -a missing=()
    debian_missing
    ((${#missing[@]})) || return 0
    local line
    say "Debian packages to install:"
    for line in "${wanted[@]}"; do
        if [[ " ${missing[*]} " == *" ${line%% *} "* ]]; then say "  $line"; fi
    done
    debian_install "${missing[@]}"
    debian_missing
    ((${#missing[@]} == 0)) || die "cannot install Debian packages: still missing: ${missing[*]}"
}

# Sets "missing" of the caller from its "wanted".
debian_missing() {
    local -a names=("${wanted[@]%% *}")
    case $(uname -m) in
        x86_64 | aarch64) ;;
        *) names+=(python3-dev) ;; # no ready wheels there: psutil and others are compiled
    esac
    local installed name
    installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${names[@]}" 2>/dev/null || true)
    missing=()
    for name in "${names[@]}"; do
        if [[ $'\n'$installed$'\n' != *$'\n'"installed $name"$'\n'* ]]; then missing+=("$name"); fi
    done
}

debian_install() {
    command -v apt-get >/dev/null ||
        die "cannot install Debian packages: no apt-get here; install them yourself: $*"
    local -a as_root=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null ||
            die "cannot install Debian packages: neither root nor sudo." \
                "As root: apt-get install $*"
        as_root=(sudo)
        if [[ ! -t 0 ]]; then
            as_root=(sudo -n)
            sudo -n true 2>/dev/null ||
                die "cannot install Debian packages: sudo wants a password and there is no terminal." \
                    "First run: sudo apt-get install $*"
        fi
    fi
    local log
    log=$(mktemp -t stoker-apt.XXXXXX)
    # Status lines go to the log; dpkg questions are answered with the defaults.
    logged "update the package lists" "$log" "${as_root[@]}" apt-get -q update
    logged "install ${#} packages" "$log" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 install "$@"
    rm -f "$log"
}

# Elsewhere nobody knows the package names, so only the things themselves are checked.
other_distribution() {
    local -a missing=()
    local tool
    for tool in cmake c++ ninja dbus-daemon flock "$python"; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    "$python" -c 'import sys, venv, gi, pydbus; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        missing+=("for $python: version 3.11 or later with venv, PyGObject and pydbus")
    if ((${#missing[@]})); then
        say "bootstrap: this is no Debian, so install by your own means what is missing:"
        printf '  %s\n' "${missing[@]}" >&2
        exit 1
    fi
}
