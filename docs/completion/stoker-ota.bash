# bash completion for stoker-ota, as `stoker-ota completion` prints it.
_stoker_ota() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local path="" word words=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$path $word" in
        " delta" | "delta make" | "delta inspect" | "delta apply" | "delta verify" | " init-pki" | " trust" | "trust show" | "trust renew" | "trust rotate" | "trust revoke" | " sign" | " runtime" | "runtime pack" | "runtime list" | " manifest" | "manifest make" | " catalog" | "catalog make" | " bundle" | "bundle make" | "bundle pack" | " verify" | " probe" | "probe make" | " publish" | " unpublish" | " command" | " desired" | " device" | "device enroll" | " campaign" | "campaign start" | "campaign watch" | "campaign pause" | "campaign resume" | "campaign abort" | "campaign report" | " completion") path="${path:+$path }$word" ;;
        esac
    done
    case $previous in
    --codec) words="smallest zstd bz2" ;;
    --signer) words="1 2 3 4 5 6 7" ;;
    --role) words="trust release catalog fleet policy" ;;
    --abort | --adapter | --after | --base | --blobs | --broker | --ca | --certificate | --days | --device | --directory | --expires-s | --export | --group | --id | --jobs | --keep | --key | --label | --ledger | --level | --lost-s | --margin | --max-rate | --max-ratio | --memory-limit | --model | --now | --operator | --output | --passphrase-file | --password-file | --pki | --policy | --root | --runtime | --soak-s | --source | --steps | --success | --threshold | --to-group | --trust | --username | --version | --wait-s | --window | -o) return ;;
    *)
        case $path in
        "") words="delta init-pki trust sign runtime manifest catalog bundle verify probe publish unpublish command desired device campaign completion -h --help --version" ;;
        "delta") words="make inspect apply verify -h --help" ;;
        "delta make") words="-h --help -o --output --codec --level --window --jobs --max-ratio --bspatch --plain --no-proof --memory-limit --json" ;;
        "delta inspect") words="-h --help --windows --export --source --directory --json" ;;
        "delta apply") words="-h --help -o --output --memory-limit --json" ;;
        "delta verify") words="-h --help --memory-limit --json" ;;
        "init-pki") words="-h --help --pki --passphrase-file --operator --threshold --now --days --json" ;;
        "trust") words="show renew rotate revoke -h --help" ;;
        "trust show") words="-h --help --json" ;;
        "trust renew") words="-h --help --pki --passphrase-file --now --days --json" ;;
        "trust rotate") words="trust release catalog fleet policy -h --help --pki --passphrase-file --revoke --signer --now --days --json" ;;
        "trust revoke") words="-h --help --pki --passphrase-file --now --days --json" ;;
        "sign") words="-h --help --pki --passphrase-file --role -o --output --json" ;;
        "runtime") words="pack list -h --help" ;;
        "runtime pack") words="-h --help -o --output --json" ;;
        "runtime list") words="-h --help --json" ;;
        "manifest") words="make -h --help" ;;
        "manifest make") words="-h --help --pki --passphrase-file -o --output --model --adapter --base --runtime --policy --now --days --json" ;;
        "catalog") words="make -h --help" ;;
        "catalog make") words="-h --help --pki --passphrase-file --after -o --output --now --days --json" ;;
        "bundle") words="make pack -h --help" ;;
        "bundle make") words="-h --help --blobs --trust -o --output --json" ;;
        "bundle pack") words="-h --help -o --output --json" ;;
        "verify") words="-h --help --trust --now --json" ;;
        "probe") words="make -h --help" ;;
        "probe make") words="-h --help --margin --json" ;;
        "publish") words="-h --help --broker --root --ca --certificate --key --username --password-file --max-rate --no-ask --json" ;;
        "unpublish") words="-h --help --broker --root --ca --certificate --key --username --password-file --max-rate --keep --json" ;;
        "command") words="update.check update.install update.rollback update.confirm model.activate policy.set runtime.restart runtime.pause runtime.resume report.state report.diagnostics log.upload config.get trust.refresh cancel -h --help --pki --passphrase-file --device --group --label --to-group --expires-s --wait-s -o --output --broker --root --ca --certificate --key --username --password-file --json" ;;
        "desired") words="-h --help --pki --passphrase-file -o --output --version --broker --root --ca --certificate --key --username --password-file --now --days --json" ;;
        "device") words="enroll -h --help" ;;
        "device enroll") words="-h --help --pki --passphrase-file --device --operator --root -o --output --now --days --json" ;;
        "campaign") words="start watch pause resume abort report -h --help" ;;
        "campaign start") words="-h --help --pki --passphrase-file --ledger --broker --root --ca --certificate --key --username --password-file --version --group --id --steps --success --abort --soak-s --window --lost-s --json" ;;
        "campaign watch") words="-h --help --pki --passphrase-file --ledger --broker --root --ca --certificate --key --username --password-file --group --once --json" ;;
        "campaign pause") words="-h --help --pki --passphrase-file --ledger --broker --root --ca --certificate --key --username --password-file --group --json" ;;
        "campaign resume") words="-h --help --pki --passphrase-file --ledger --broker --root --ca --certificate --key --username --password-file --group --json" ;;
        "campaign abort") words="-h --help --pki --passphrase-file --ledger --broker --root --ca --certificate --key --username --password-file --group --json" ;;
        "campaign report") words="-h --help --pki --passphrase-file --ledger --broker --root --ca --certificate --key --username --password-file --group --json" ;;
        "completion") words="bash -h --help --json" ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stoker_ota stoker-ota
