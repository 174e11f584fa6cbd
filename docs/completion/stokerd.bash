# bash completion for stokerd, made by python -m bench.completions.
_stokerd() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=""
    case $previous in
    --engine) words="llama echo" ;;
    --log-level) words="debug info warning error" ;;
    --board | --bus | --config | --fit | --model | --runtime-dir | --score | --state-dir | --sysfs-root) return ;;
    *)
        case ${COMP_WORDS[1]} in
        *) words="-h --help --config --bus --session --model --engine --state-dir --runtime-dir --sysfs-root --board --log-level --fit --json --score --check-config --restore-caps --version" ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stokerd stokerd
