# bash completion for stoker-model, made by python -m bench.completions.
_stoker_model() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local verb="" word skip=0 words=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if ((skip)); then
            skip=0
            continue
        fi
        case $word in
        --board | --budget | --count | --figures | --high | --keep | --layers | --low | --memory | --plot | --probes | --reference | --tensor | --text | --threads | --tokens | --type) skip=1 ;;
        -*) ;;
        *)
            verb=$word
            break
            ;;
        esac
    done
    case $previous in
    --type) words="f32 f16 bf16 q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 q4_0 iq4_nl iq4_xs q3_k_l q3_k_m q3_k_s q2_k" ;;
    --low) words="f32 f16 bf16 q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0 iq4_nl iq4_xs q3_k q2_k" ;;
    --high) words="f32 f16 bf16 q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0 iq4_nl iq4_xs q3_k q2_k" ;;
    --board | --budget | --count | --figures | --keep | --layers | --memory | --plot | --probes | --reference | --tensor | --text | --threads | --tokens) return ;;
    *)
        case $verb in
        "") words="inspect quantize prune evaluate -h --help --version --json --threads" ;;
        inspect) words="-h --help --board --memory --json" ;;
        quantize) words="-h --help --type --tensor --importance --budget --low --high --text --tokens --json" ;;
        prune) words="-h --help --layers --count --type --text --tokens --json" ;;
        evaluate) words="-h --help --reference --keep --plot --probes --figures --text --tokens --json" ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stoker_model stoker-model
