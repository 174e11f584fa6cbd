# bash completion for stoker-gateway, made by python -m bench.completions.
_stoker_gateway() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=""
    case $previous in
    --bus | --config | --listen | --tokens | --unix) return ;;
    *)
        case ${COMP_WORDS[1]} in
        *) words="-h --help --config --listen --unix --bus --tokens --openapi --check-config --version" ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stoker_gateway stoker-gateway
