#!/usr/bin/env bash
# "make deb": the Debian packages, in build/deb. llama.cpp is compiled for the field here, once per
# source, flags and compiler, and kept in the cache, as is what is bundled of Python (bundle.sh);
# dpkg-buildpackage then works without network.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
readonly root
readonly venv=$root/.venv
: "${STOKER_CACHE:?run it by make deb}"

readonly program=deb
# shellcheck source=.ci/steps/talk.sh
. .ci/steps/talk.sh
# shellcheck source=.ci/steps/llama.sh
. .ci/steps/llama.sh
# shellcheck source=.ci/steps/bundle.sh
. .ci/steps/bundle.sh
# shellcheck source=.ci/steps/packages.sh
. .ci/steps/packages.sh

arch=${DEB_ARCH:-$(dpkg --print-architecture)}
readonly arch

# Variants a device chooses from at run time. ggml knows more; each costs 1.2 MB of the package,
# and these are the steps that pay: no AVX (old Atoms), AVX, AVX2, AVX-VNNI (N100), AVX-512.
case $arch in
    amd64) readonly -a variants=(x64 sse42 sandybridge haswell alderlake skylakex icelake zen4) ;;
    # Pi 4; Pi 5, RK3588 and Orin; int8 matrices without SVE (Oryon, Apple's since M2); SVE with and
    # without SVE2.
    arm64) readonly -a variants=(armv8.0_1 armv8.2_1 armv8.2_2 armv8.6_0 armv8.6_1 armv8.6_2) ;;
    *) die "cannot build for $arch: amd64 and arm64 are known" ;;
esac

# Which ggml has for Android alone: after its variant of the first word, these.
readonly extra_after=armv8.2_2 extra="armv8.6_0 DOTPROD FP16_VECTOR_ARITHMETIC MATMUL_INT8"

readonly -a field_flags=(
    "${llama_flags[@]}"
    -DGGML_NATIVE=OFF
    -DGGML_CPU_ALL_VARIANTS=ON
)

cross() { [[ $arch != "$(dpkg --print-architecture)" ]]; }

field_environment() {
    printf '%s\n' "${llama_environment[@]}"
    if cross; then
        local triplet
        triplet=$(dpkg-architecture -a"$arch" -qDEB_HOST_GNU_TYPE 2>/dev/null)
        printf 'CC=%s-gcc\nCXX=%s-g++\n' "$triplet" "$triplet"
    fi
}

field_key() {
    {
        cat .ci/lock/llama.txt .ci/patches/llama-*.patch
        printf '%s\n' "$arch" "${field_flags[@]}" "${variants[@]}"
        field_environment
        c++ --version | head -n 1
        cmake --version | head -n 1
    } | sha256sum | cut -c1-16
}

# Builds into a temporary folder and renames it when it is whole. What is kept: the libraries and
# the bindings' low-level modules; neither server, tools, multimodal nor training code. Natively
# only the variants are compiled: the rest is what the virtual environment has, of the same sources,
# flags and compiler.
field_llama() {
    local dir=$1 log=$STOKER_CACHE/logs/llama-field.log source start=$SECONDS
    mkdir -p "$STOKER_CACHE/logs" "${dir%/*}"
    work=$(mktemp -d "$STOKER_CACHE/field.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    source=$(llama_unpack "$work")
    say "  build llama.cpp for $arch: ${variants[*]} (log: $log) …"
    field_compile "$source/vendor/llama.cpp" "$log" || fail_with_log "build llama.cpp" "$log"
    field_collect "$source" >>"$log" 2>&1 || fail_with_log "collect llama.cpp" "$log"
    rm -rf "$dir"
    mv "$work/out" "$dir"
    rm -rf "$work"
    trap - EXIT
    say "  build llama.cpp for $arch: done in $((SECONDS - start)) s"
}

field_compile() {
    local source=$1 log=$2 wanted
    local -a system=() targets=() environment
    if [[ $arch == arm64 && $(uname -m) != aarch64 ]]; then
        system=(-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64)
    fi
    cross || targets=(--target "${variants[@]/#/ggml-cpu-}")
    sed -i "s/^\( *\)ggml_add_cpu_backend_variant($extra_after .*/&\n\1ggml_add_cpu_backend_variant($extra)/" \
        "$source/ggml/src/CMakeLists.txt"
    # ggml depends on every variant it knows: let it know only ours.
    wanted=$(IFS='|' && printf '%s' "${variants[*]}")
    sed -i -E "/ggml_add_cpu_backend_variant\(/{/\((${wanted//./\\.})[ )]/!d}" \
        "$source/ggml/src/CMakeLists.txt"
    mapfile -t environment < <(field_environment)
    env "${environment[@]}" cmake -G Ninja -S "$source" -B "$work/build" "${field_flags[@]}" \
        "${system[@]}" >"$log" 2>&1 </dev/null || return 1
    NINJA_STATUS='@%f/%t@ ' nice cmake --build "$work/build" --parallel "$(llama_jobs)" \
        "${targets[@]}" 2>&1 </dev/null | tee -a "$log" | llama_progress || return 1
    if cross; then
        cmake --install "$work/build" --prefix "$work/native" --strip >>"$log" 2>&1 </dev/null
    else
        mkdir -p "$work/native/bin"
        cp "$work"/build/bin/libggml-cpu-*.so "$work/native/bin/" &&
            strip --strip-unneeded "$work"/native/bin/*.so &&
            shared_libraries "$work/native/lib" >>"$log" 2>&1
    fi
}

# libllama and ggml out of the wheel that bootstrap has made.
shared_libraries() {
    "$venv/bin/python" - "$STOKER_CACHE/llama/$(llama_key)" "$1" <<'PYTHON'
import pathlib, sys, zipfile

folder, target = map(pathlib.Path, sys.argv[1:])
target.mkdir(parents=True)
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for name in ("libllama.so", "libggml.so", "libggml-base.so"):
        (target / name).write_bytes(archive.read(f"llama_cpp/lib/{name}"))
PYTHON
}

field_collect() {
    local source=$1 out=$work/out/llama_cpp version
    version=$(llama_version)
    mkdir -p "$out/lib"
    cp "$work"/native/lib/lib{llama,ggml,ggml-base}.so "$work"/native/bin/libggml-cpu-*.so \
        "$out/lib/" || return 1
    chmod 644 "$out"/lib/*
    cp "$source"/llama_cpp/{llama_cpp,_ggml,_ctypes_extensions}.py "$out/" || return 1
    # The runner never runs the package's own __init__: it would import numpy.
    printf '"""The low-level bindings of llama-cpp-python %s, for the runner of Stoker."""\n' \
        "$version" >"$out/__init__.py"
    printf '\n__version__ = "%s"\n' "$version" >>"$out/__init__.py"
    # So that the runner can say which version it has.
    local facts=$work/out/llama_cpp_python-$version.dist-info
    mkdir "$facts"
    printf 'Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: %s\n' "$version" \
        >"$facts/METADATA"
}

field_dir() { printf '%s\n' "$STOKER_CACHE/llama-field/$(field_key)-$arch"; }

# The tools of the build, beside what bootstrap has brought.
build_packages() {
    local -a wanted=(debhelper dh-python dpkg-dev fakeroot lintian) missing=()
    local name
    if cross; then wanted+=("crossbuild-essential-$arch"); fi
    for name in "${wanted[@]}"; do
        [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null || true) == installed ]] ||
            missing+=("$name")
    done
    ((${#missing[@]})) || return 0
    say "Debian packages to install: ${missing[*]}"
    local -a as_root=()
    ((EUID == 0)) || as_root=(sudo)
    logged "update the package lists" "$STOKER_CACHE/logs/deb-apt.log" \
        "${as_root[@]}" apt-get -q update
    logged "install the tools of the build" "$STOKER_CACHE/logs/deb-apt.log" \
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
        --no-install-recommends -o DPkg::Lock::Timeout=300 install "${missing[@]}"
}

# What git knows and what it would know: never the leavings of a work tree.
copy_source() {
    local target=$1
    rm -rf "$target"
    mkdir -p "$target"
    git ls-files -z --cached --others --exclude-standard |
        while IFS= read -r -d '' file; do
            if [[ -f $file ]]; then printf '%s\0' "$file"; fi
        done | tar -c --null -T - | tar -x -C "$target"
}

packages() {
    local out=$root/build/deb work=$root/build/deb-work log=$STOKER_CACHE/logs/deb-$arch.log now
    now=$(package_sources)
    local -a kind=(-b)
    # A cross build wants a Python of the other kind for nothing: all modules are pure.
    if cross; then kind=(-B -d -a"$arch"); fi
    copy_source "$work/stoker"
    logged "build the packages" "$log" env -C "$work/stoker" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        STOKER_LLAMA="$(field_dir)" STOKER_BUNDLED="$(bundle_dir)" \
        STOKER_MODEL="$STOKER_CACHE/models/SmolLM2-135M-Instruct.Q4_1.gguf" \
        nice dpkg-buildpackage "${kind[@]}" -us -uc
    mkdir -p "$out"
    if [[ ${kind[0]} == -b ]]; then rm -f "$out"/*_all.deb; fi
    rm -f "$out"/*_"$arch".* "$out/sources-$arch"
    mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$out/"
    rm -rf "$work"
    printf '%s\n' "$now" >"$out/sources-$arch"
}

# One build at a time for this tree and for this cache; a second one finds the work done.
lock() {
    mkdir -p build/deb "$STOKER_CACHE/llama-field"
    exec 8<build/deb 9<"$STOKER_CACHE/llama-field"
    if ! flock -n 8 || ! flock -n 9; then
        say "deb: another build is at work here; waiting for it"
        flock 8
        flock 9
    fi
}

main() {
    build_packages
    lock
    if [[ ! -d $(field_dir) ]]; then field_llama "$(field_dir)"; fi
    bundle "$(bundle_dir)"
    packages
    if [[ ${1:-} != --no-lintian ]]; then
        say "  lintian …"
        lintian --fail-on error,warning "$root"/build/deb/*.changes
    fi
    (cd build/deb && du -h -- *.deb) >&2
}

main "$@"
