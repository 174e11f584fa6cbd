"""Builds the peers of the inference benchmark, llama-bench and llama-server, on our libraries.

The sources come from the cached sdist of llama-cpp-python; only the two programs and what they
need (no TLS, no web page) are compiled, then linked against the libraries inside the virtual
environment. A peer of another build would measure compilers, not our loop.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SDIST: Final = "llama-cpp-python-0.3.36.tar.gz"
_CMAKE: Final = """\
cmake_minimum_required(VERSION 3.18)
project(stoker_peers C CXX)
set(CMAKE_CXX_STANDARD 17)
set(BUILD_SHARED_LIBS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(LLAMA_BUILD_COMMON ON)
set(LLAMA_BUILD_NUMBER 0)
set(LLAMA_BUILD_COMMIT "unknown")
set(LLAMA_VERSION_BASE "0.0.0")
set(LLAMA_VERSION_MAJOR "0")
find_package(Threads REQUIRED)
function(llama_add_compile_flags)
endfunction()
function(license_add_file)
endfunction()
add_library(llama SHARED IMPORTED GLOBAL)
set_target_properties(llama PROPERTIES IMPORTED_LOCATION "${LIBS}/libllama.so"
  INTERFACE_INCLUDE_DIRECTORIES "${SOURCE}/include;${SOURCE}/ggml/include"
  INTERFACE_LINK_LIBRARIES "${LIBS}/libggml.so;${LIBS}/libggml-base.so")
add_library(ggml INTERFACE IMPORTED GLOBAL)
target_include_directories(ggml INTERFACE "${SOURCE}/ggml/include")
set(UI ${CMAKE_CURRENT_BINARY_DIR}/ui)
file(MAKE_DIRECTORY ${UI})
execute_process(COMMAND ${CMAKE_COMMAND} -DUI_SOURCE_DIR=${SOURCE}/tools/ui -DUI_BINARY_DIR=${UI}
  -DLLAMA_SOURCE_DIR=${SOURCE} -DHF_ENABLED=OFF -DBUILD_UI=OFF -DLLAMA_UI_GZIP=OFF
  -P ${SOURCE}/scripts/ui-assets.cmake)
add_library(llama-ui STATIC ${UI}/ui.cpp)
target_include_directories(llama-ui PUBLIC ${UI})
target_compile_features(llama-ui PRIVATE cxx_std_17)
add_custom_target(llama-ui-assets)
add_subdirectory(${SOURCE}/vendor vendor)
add_subdirectory(${SOURCE}/common common)
add_subdirectory(${SOURCE}/tools/llama-bench llama-bench)
add_subdirectory(${SOURCE}/tools/mtmd mtmd EXCLUDE_FROM_ALL)
add_subdirectory(${SOURCE}/tools/server server)
"""


def cache_dir() -> Path:
    """``$STOKER_CACHE``, else ``~/.cache/stoker``."""
    return Path(os.environ.get("STOKER_CACHE") or Path.home() / ".cache" / "stoker")


def peer_environment() -> dict[str, str]:
    """The CPU backend is a file of its own, for peers as for our runner."""
    return {"GGML_BACKEND_PATH": str(library_dir() / "libggml-cpu.so")}


def library_dir() -> Path:
    """Where the shared libraries of llama-cpp-python in this environment are."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("cannot find llama_cpp: run 'make run' first, it builds the environment")
    return Path(next(iter(spec.submodule_search_locations))) / "lib"


def vendored() -> Path:
    """The sources of llama.cpp that our libraries are built from; unpacked on first use."""
    return _unpack(cache_dir() / "llama-bench")


def llama_bench(*, jobs: int | None = None) -> Path:
    """Path of the llama-bench binary, built on first use (a few minutes on two cores)."""
    return _built("llama-bench", jobs)


def llama_server(*, jobs: int | None = None) -> Path:
    """Path of the llama-server binary, built on first use (ten minutes on two cores)."""
    return _built("llama-server", jobs)


def _built(name: str, jobs: int | None) -> Path:
    work = cache_dir() / "llama-bench"
    binary = work / "build" / "bin" / name
    stamp = work / f"linked-against-{name}"
    identity = _identity(library_dir())
    if binary.is_file() and stamp.is_file() and stamp.read_text() == identity:
        return binary
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            raise SystemExit(f"cannot build {name}: {tool} is missing")
    source = _unpack(work)
    project = work / "project"
    project.mkdir(parents=True, exist_ok=True)
    (project / "CMakeLists.txt").write_text(_CMAKE)
    build = work / "build"
    _run(
        "cmake", "-S", str(project), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release",
        f"-DSOURCE={source}", f"-DLIBS={library_dir()}", "-DMTMD_VIDEO=OFF",
        f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={build / 'bin'}",
        f"-DCMAKE_BUILD_RPATH={library_dir()}",
    )  # fmt: skip
    width = str(jobs or os.cpu_count() or 1)
    _run("cmake", "--build", str(build), "--target", name, "--parallel", width)
    stamp.write_text(identity)
    return binary


def _unpack(work: Path) -> Path:
    archive = cache_dir() / SDIST
    if not archive.is_file():
        raise SystemExit(f"cannot build a peer: {archive} is missing; 'make run' keeps it there")
    found = sorted(work.glob("llama_cpp_python-*/vendor/llama.cpp"))
    if not found:
        work.mkdir(parents=True, exist_ok=True)
        # Debian 12's tarfile has no extraction filter yet; tar refuses absolute and ".." paths
        _run("tar", "-xzf", str(archive), "-C", str(work), "--no-same-owner")
        found = sorted(work.glob("llama_cpp_python-*/vendor/llama.cpp"))
    return found[0]


def _identity(libs: Path) -> str:
    parts = []
    for name in ("libllama.so", "libggml-base.so"):
        facts = (libs / name).stat()
        parts.append(f"{libs / name} {facts.st_size} {facts.st_mtime_ns}")
    return "\n".join(parts)


def _run(*command: str) -> None:
    print("+", " ".join(command), flush=True)
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit(f"cannot build a peer: {command[0]} failed")
