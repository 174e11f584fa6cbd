# bash completion for stoker-model, made by python -m bench.completions.
_stoker_model() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=""
    case $previous in
    --high) words="f32 f16 bf16 q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0 iq4_nl iq4_xs q3_k q2_k" ;;
    --low) words="f32 f16 bf16 q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0 iq4_nl iq4_xs q3_k q2_k" ;;
    --type) words="f32 f16 bf16 q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 q4_0 iq4_nl iq4_xs q3_k_l q3_k_m q3_k_s q2_k" ;;
    --board | --budget | --count | --figures | --keep | --layers | --memory | --plot | --probes | --reference | --tensor | --text | --threads | --tokens) return ;;
    *)
        case ${COMP_WORDS[1]} in
        inspect) words="-h --help --board --memory --json" ;;
        quantize) words="-h --help --type --tensor --importance --budget --low --high --text --tokens --json" ;;
        prune) words="-h --help --layers --count --type --text --tokens --json" ;;
        evaluate) words="-h --help --reference --keep --plot --probes --figures --text --tokens --json" ;;
        *) words="inspect quantize prune evaluate -h --help --version --json --threads" ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stoker_model stoker-model
