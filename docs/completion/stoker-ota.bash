# bash completion for stoker-ota, as `stoker-ota completion` prints it.
_stoker_ota() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local path="" word words=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$path $word" in
        " delta" | "delta make" | "delta inspect" | "delta apply" | "delta verify" | " init-pki" | " trust" | "trust show" | "trust renew" | "trust rotate" | "trust revoke" | " sign" | " manifest" | "manifest make" | " catalog" | "catalog make" | " bundle" | "bundle make" | " verify" | " probe" | "probe make" | " completion") path="${path:+$path }$word" ;;
        esac
    done
    case $previous in
    --codec) words="smallest zstd bz2" ;;
    --role) words="trust release catalog fleet policy" ;;
    --after | --blobs | --days | --directory | --export | --jobs | --level | --margin | --max-ratio | --memory-limit | --now | --operator | --output | --passphrase-file | --pki | --source | --threshold | --trust | --window | -o) return ;;
    *)
        case $path in
        "") words="delta init-pki trust sign manifest catalog bundle verify probe completion -h --help" ;;
        "delta") words="make inspect apply verify -h --help" ;;
        "delta make") words="-h --help -o --output --codec --level --window --jobs --max-ratio --plain --no-proof --memory-limit --json" ;;
        "delta inspect") words="-h --help --windows --export --source --directory --json" ;;
        "delta apply") words="-h --help -o --output --memory-limit --json" ;;
        "delta verify") words="-h --help --memory-limit --json" ;;
        "init-pki") words="-h --help --pki --passphrase-file --operator --threshold --now --days --json" ;;
        "trust") words="show renew rotate revoke -h --help" ;;
        "trust show") words="-h --help --json" ;;
        "trust renew") words="-h --help --pki --passphrase-file --now --days --json" ;;
        "trust rotate") words="trust release catalog fleet policy -h --help --pki --passphrase-file --revoke --now --days --json" ;;
        "trust revoke") words="-h --help --pki --passphrase-file --now --days --json" ;;
        "sign") words="-h --help --pki --passphrase-file --role -o --output --json" ;;
        "manifest") words="make -h --help" ;;
        "manifest make") words="-h --help --pki --passphrase-file -o --output --now --days --json" ;;
        "catalog") words="make -h --help" ;;
        "catalog make") words="-h --help --pki --passphrase-file --after -o --output --now --days --json" ;;
        "bundle") words="make -h --help" ;;
        "bundle make") words="-h --help --blobs --trust -o --output --json" ;;
        "verify") words="-h --help --trust --now --json" ;;
        "probe") words="make -h --help" ;;
        "probe make") words="-h --help --margin --json" ;;
        "completion") words="bash -h --help --json" ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stoker_ota stoker-ota
