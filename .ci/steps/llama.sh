# shellcheck shell=bash
# llama.cpp and its Python bindings, built once per source, flags, compiler and processor, kept
# in the cache as one wheel. Multimodal, server, tools and tests are left out: they are most of
# the compile time and nothing here loads them. The package takes libllama and ggml from the same
# wheel and adds its own builds of the CPU backend (deb.sh). Sourced by bootstrap.

# For the virtual environment and for the package.
readonly -a llama_flags=(
    -DCMAKE_BUILD_TYPE=Release
    -DBUILD_SHARED_LIBS=ON
    -DLLAMA_BUILD_COMMON=OFF
    -DLLAMA_BUILD_TESTS=OFF
    -DLLAMA_BUILD_EXAMPLES=OFF
    -DLLAMA_BUILD_TOOLS=OFF
    -DLLAMA_BUILD_SERVER=OFF
    -DLLAMA_BUILD_APP=OFF
    -DLLAMA_CURL=OFF
    -DGGML_CCACHE=OFF
    -DGGML_OPENMP=ON
    -DGGML_BACKEND_DL=ON # the CPU backend is a file of its own: only that depends on the processor
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON
    "-DCMAKE_INSTALL_RPATH=\$ORIGIN"
    -DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON # a wheel cannot hold the links of versioned names
)

# Debian's hardening, spelled out: the same on every system, whatever settings the shell carries.
readonly llama_c_flags="-O2 -fstack-protector-strong -Wformat -Werror=format-security"
readonly -a llama_environment=(
    "CFLAGS=$llama_c_flags"
    "CXXFLAGS=$llama_c_flags"
    "CPPFLAGS=-D_FORTIFY_SOURCE=2"
    "LDFLAGS=-Wl,-z,relro -Wl,-z,now"
)

# For this very processor: the key below carries its features.
readonly -a llama_native_flags=("${llama_flags[@]}" -DGGML_NATIVE=ON)

llama_facts() {
    cat .ci/lock/llama.txt .ci/patches/llama-*.patch
    printf '%s\n' "${llama_native_flags[@]}" "${llama_environment[@]}"
    uname -m
    c++ --version | head -n 1
    cmake --version | head -n 1
    # What -march=native sees: "flags" on x86, the rest on Arm.
    grep -E '^(flags|Features|CPU (implementer|part|variant))' /proc/cpuinfo | sort -u || true
}

llama_key() { llama_facts | sha256sum | cut -c1-16; }

llama_library() {
    local key dir
    key=$(llama_key)
    dir=$STOKER_CACHE/llama/$key
    if [[ ! -d $dir ]]; then llama_build "$dir"; fi
    once llama "$key" logged "install llama-cpp-python" "$STOKER_CACHE/logs/llama-install.log" \
        pip_install --no-deps --no-index --force-reinstall "$dir"/*.whl
}

# The verified source archive stays in the cache: the benchmark builds its peer from it.
llama_source() {
    local archive=$1 wanted
    wanted=$(sed -n 's/.*--hash=sha256:\([0-9a-f]*\).*/\1/p' .ci/lock/llama.txt)
    if [[ -f $archive && $(sha256sum <"$archive") == "$wanted  -" ]]; then return 0; fi
    logged "download llama-cpp-python (73 MB of sources)" "$STOKER_CACHE/logs/llama-download.log" \
        "$venv/bin/python" -m pip download --disable-pip-version-check --no-input --no-deps \
        --no-binary :all: --no-build-isolation --require-hashes -r .ci/lock/llama.txt -d "$work"
    mv "$work"/llama_cpp_python-*.tar.gz "$archive"
}

llama_version() { sed -n 's/^llama-cpp-python==\([^ ]*\).*/\1/p' .ci/lock/llama.txt; }

# The sources below the folder $1 with our patches (each says why); prints where they are.
llama_unpack() {
    local version archive
    version=$(llama_version)
    archive=$STOKER_CACHE/llama-cpp-python-$version.tar.gz
    # chained: "set -e" does not reach into the command substitution that calls this
    llama_source "$archive" && tar -xzf "$archive" -C "$1" &&
        cat .ci/patches/llama-*.patch |
        patch --silent --forward --fuzz=0 -p1 -d "$1/llama_cpp_python-$version/vendor/llama.cpp" >&2 &&
        printf '%s\n' "$1/llama_cpp_python-$version"
}

# Builds into a temporary folder and renames it when it is whole.
llama_build() {
    local dir=$1 source start=$SECONDS
    local log=$STOKER_CACHE/logs/llama-build.log
    rm -rf "$STOKER_CACHE"/building.* # left by a killed one: we hold the lock
    work=$(mktemp -d "$STOKER_CACHE/building.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    source=$(llama_unpack "$work")
    llama_compile "$source" "$log" || fail_with_log "build llama.cpp" "$log"
    llama_wheel "$source" >>"$log" 2>&1 </dev/null || fail_with_log "build llama-cpp-python" "$log"
    llama_facts >"$work/out/build-facts.txt"
    mkdir -p "$STOKER_CACHE/llama"
    mv "$work/out" "$dir"
    rm -rf "$work"
    trap - EXIT
    say "  build llama.cpp: done in $((SECONDS - start)) s"
}

# Half a gigabyte a compiler: a small board must not swap itself to death.
llama_jobs() {
    local cores by_memory
    cores=$(nproc)
    by_memory=$(awk '/^MemAvailable/ { print int($2 / 600000) }' /proc/meminfo)
    ((by_memory < cores)) && cores=$by_memory
    ((cores < 1)) && cores=1
    printf '%s\n' "$cores"
}

llama_compile() {
    local source=$1 log=$2 jobs
    jobs=$(llama_jobs)
    say "  build llama.cpp with $jobs jobs (a few minutes; log: $log) …"
    # One backend for this processor, in a file of its own: ggml's build refuses the two together
    # because it could not tell other processors apart. It need not: the key above does.
    sed -i '/GGML_NATIVE is not compatible with GGML_BACKEND_DL/d' \
        "$source/vendor/llama.cpp/ggml/src/ggml-cpu/CMakeLists.txt"
    plainly cmake -G Ninja -S "$source/vendor/llama.cpp" -B "$work/build" \
        "${llama_native_flags[@]}" >"$log" 2>&1 </dev/null || return 1
    NINJA_STATUS='@%f/%t@ ' plainly cmake --build "$work/build" --parallel "$jobs" 2>&1 </dev/null |
        tee -a "$log" | llama_progress || return 1
    cmake --install "$work/build" --prefix "$work/native" --strip >>"$log" 2>&1 </dev/null
}

# Ninja's "@12/118@ …" lines as a bar on a terminal, as a line every tenth elsewhere.
llama_progress() {
    local line percent shown=-1
    while IFS= read -r line; do
        [[ $line =~ ^@([0-9]+)/([0-9]+)@ ]] || continue
        percent=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2]))
        if [[ -t 2 ]]; then
            printf '\r    %3d %%  %s of %s files ' "$percent" "${BASH_REMATCH[1]}" \
                "${BASH_REMATCH[2]}" >&2
        elif ((percent / 10 > shown)); then
            shown=$((percent / 10))
            say "    $percent %"
        fi
    done
    if [[ -t 2 ]]; then printf '\n' >&2; fi
}

# The build must be what its key says, whatever compiler settings the shell carries.
plainly() { env -u CC -u CXX "${llama_environment[@]}" "$@"; }

# The libraries go inside the wheel, where the bindings look for them, so that one
# "pip install" brings and removes all of it.
llama_wheel() {
    local source=$1
    mkdir -p "$source/llama_cpp/lib" "$work/out" &&
        cp "$work"/native/lib/*.so "$work"/native/bin/libggml-cpu.so "$source/llama_cpp/lib/" ||
        return 1
    rm -rf "$source/.gitignore" "$source/.git" # the ignore file would leave "lib" out
    CMAKE_ARGS="-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF" plainly "$venv/bin/python" -m pip wheel \
        --disable-pip-version-check --no-input --no-deps --no-index --no-build-isolation \
        -w "$work/out" "$source"
}
