# bash completion for stokerd, made by python -m bench.completions.
_stokerd() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local verb="" word skip=0 words=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if ((skip)); then
            skip=0
            continue
        fi
        case $word in
        --board | --bus | --config | --engine | --fit | --log-level | --model | --runtime-dir | --score | --state-dir | --sysfs-root) skip=1 ;;
        -*) ;;
        *)
            verb=$word
            break
            ;;
        esac
    done
    case $previous in
    --engine) words="llama echo" ;;
    --log-level) words="debug info warning error" ;;
    --board | --bus | --config | --fit | --model | --runtime-dir | --score | --state-dir | --sysfs-root) return ;;
    *)
        case $verb in
        "") words="-h --help --config --bus --session --model --engine --state-dir --runtime-dir --sysfs-root --board --log-level --fit --json --score --check-config --restore-caps --version" ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stokerd stokerd
