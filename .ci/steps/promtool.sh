# shellcheck shell=bash
# promtool, which judges our metrics and rules in the tests: taken out of Debian's package, because
# installing that would start a Prometheus. Sourced by bootstrap.

promtool_path() { printf '%s\n' "$STOKER_CACHE/promtool/promtool"; }

promtool() {
    local path work
    path=$(promtool_path)
    if [[ -x $path ]] || command -v promtool >/dev/null || ! command -v apt-get >/dev/null; then
        return 0
    fi
    work=$(mktemp -d "$STOKER_CACHE/fetching.XXXXXX")
    chmod 755 "$work" # apt fetches as another user
    logged "download promtool (19 MB)" "$STOKER_CACHE/logs/promtool.log" \
        env -C "$work" apt-get -q download prometheus
    dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -x -C "$work" ./usr/bin/promtool
    mkdir -p "${path%/*}"
    mv "$work/usr/bin/promtool" "$path"
    rm -rf "$work"
}
