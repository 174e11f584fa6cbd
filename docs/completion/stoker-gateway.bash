# bash completion for stoker-gateway, made by python -m bench.completions.
_stoker_gateway() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local verb="" word skip=0 words=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if ((skip)); then
            skip=0
            continue
        fi
        case $word in
        --bus | --config | --listen | --tokens | --unix) skip=1 ;;
        -*) ;;
        *)
            verb=$word
            break
            ;;
        esac
    done
    case $previous in
    --bus | --config | --listen | --tokens | --unix) return ;;
    *)
        case $verb in
        "") words="-h --help --config --listen --unix --bus --tokens --openapi --check-config --version" ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stoker_gateway stoker-gateway
