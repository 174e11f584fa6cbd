#!/bin/sh
# shlibs-ceiling.sh FOLDER VERSION…: fails where a library below FOLDER needs a newer version of a
# system library's symbols than the given ones (GLIBC_2.34, say), of which debian/rules has made
# the dependencies of a cross build.
set -eu

folder=$1
shift
needed=$(find "$folder" -name '*.so*' -type f -exec readelf --version-info --wide {} + |
    grep -oE 'Name: (GLIBC|GLIBCXX|CXXABI|GOMP)_[0-9.]+' | cut -d ' ' -f 2 | sort -u)
for name in $needed; do
    for ceiling in "$@" ""; do
        [ "${ceiling%%_*}" != "${name%%_*}" ] || break
    done
    newest=$(printf '%s\n' "$name" "$ceiling" | sort -V | tail -n 1)
    if [ -z "$ceiling" ] || [ "$newest" != "$ceiling" ]; then
        echo "$folder needs $name, above ${ceiling:-nothing}: is this built on Debian 12?" >&2
        exit 1
    fi
done
