"""Builds the peer of the inference benchmark: llama-bench on the very libraries we ship.

The sources come from the cached sdist of llama-cpp-python; only llama-bench and its
``common`` code are compiled, then linked against the libraries inside the virtual
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
project(stoker_llama_bench C CXX)
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
add_subdirectory(${SOURCE}/vendor vendor)
add_subdirectory(${SOURCE}/common common)
add_subdirectory(${SOURCE}/tools/llama-bench llama-bench)
"""


def cache_dir() -> Path:
    """``$STOKER_CACHE``, else ``~/.cache/stoker``."""
    return Path(os.environ.get("STOKER_CACHE") or Path.home() / ".cache" / "stoker")


def library_dir() -> Path:
    """Where the shared libraries of llama-cpp-python in this environment are."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("cannot find llama_cpp: run 'make run' first, it builds the environment")
    return Path(next(iter(spec.submodule_search_locations))) / "lib"


def llama_bench(*, jobs: int | None = None) -> Path:
    """Path of the llama-bench binary, built on first use (a few minutes on two cores)."""
    work = cache_dir() / "llama-bench"
    binary = work / "build" / "bin" / "llama-bench"
    stamp = work / "linked-against"
    identity = _identity(library_dir())
    if binary.is_file() and stamp.is_file() and stamp.read_text() == identity:
        return binary
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            raise SystemExit(f"cannot build llama-bench: {tool} is missing")
    source = _unpack(work)
    project = work / "project"
    project.mkdir(parents=True, exist_ok=True)
    (project / "CMakeLists.txt").write_text(_CMAKE)
    build = work / "build"
    _run(
        "cmake", "-S", str(project), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release",
        f"-DSOURCE={source}", f"-DLIBS={library_dir()}",
        f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={build / 'bin'}",
        f"-DCMAKE_BUILD_RPATH={library_dir()}",
    )  # fmt: skip
    width = str(jobs or os.cpu_count() or 1)
    _run("cmake", "--build", str(build), "--target", "llama-bench", "--parallel", width)
    stamp.write_text(identity)
    return binary


def _unpack(work: Path) -> Path:
    archive = cache_dir() / SDIST
    if not archive.is_file():
        raise SystemExit(
            f"cannot build llama-bench: {archive} is missing; 'make run' keeps it there"
        )
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
        raise SystemExit(f"cannot build llama-bench: {command[0]} failed")
