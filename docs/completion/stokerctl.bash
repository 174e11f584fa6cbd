# bash completion for stokerctl, as `stokerctl completion` prints it.
_stokerctl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local verb="" word skip=0 words=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if ((skip)); then
            skip=0
            continue
        fi
        case $word in
        --against | --bus | --class | --count | --cpu | --deployment | --file | --grammar | --hours | --html | --interval-us | --json-schema | --limit | --lora | --max-tokens | --model | --plot | --prompt-tokens | --reasoning-tokens | --runs | --save | --schema | --seconds | --seed | --session | --stop | --summary | --system | --temperature | --text | --timeout | --tokens | --tool | -f) skip=1 ;;
        -*) ;;
        *)
            verb=$word
            break
            ;;
        esac
    done
    case $previous in
    --bus) words="system session" ;;
    --class) words="interactive normal background" ;;
    --summary) words="on off" ;;
    --tool) words="auto own cyclictest" ;;
    --against | --count | --cpu | --deployment | --file | --grammar | --hours | --html | --interval-us | --json-schema | --limit | --lora | --max-tokens | --model | --plot | --prompt-tokens | --reasoning-tokens | --runs | --save | --schema | --seconds | --seed | --session | --stop | --system | --temperature | --text | --timeout | --tokens | -f) return ;;
    *)
        case $verb in
        "") words="ask chat sessions status models tokens embed thermal calibrate rt bench top report update fleet version reload restart-runner completion -h --help --json --bus --no-color" ;;
        ask) words="-h --help -f --file --system --model --max-tokens --temperature --seed --stop --timeout --class --reasoning --schema --json-schema --grammar --reasoning-tokens --lora --raw --stats --no-stdin --json --bus --no-color" ;;
        chat) words="-h --help --system --model --max-tokens --temperature --seed --stop --timeout --class --reasoning --session --new --summary --list --json --bus --no-color" ;;
        sessions) words="list show export delete -h --help --all --json --bus --no-color" ;;
        status) words="-h --help --json --bus --no-color" ;;
        models) words="list use -h --help --json --bus --no-color" ;;
        tokens) words="-h --help --ids --json --bus --no-color" ;;
        embed) words="-h --help --json --bus --no-color" ;;
        thermal) words="show discover -h --help --json --bus --no-color" ;;
        calibrate) words="run show cancel -h --help --fresh --json --bus --no-color" ;;
        rt) words="show probe -h --help --seconds --interval-us --cpu --tool --json --bus --no-color" ;;
        bench) words="-h --help --model --runs --prompt-tokens --tokens --text --save --against --plot --json --bus --no-color" ;;
        top) words="-h --help --seconds --count --json --bus --no-color" ;;
        report) words="-h --help --html --hours --json --bus --no-color" ;;
        update) words="list check inspect install rollback confirm cancel history inhibit -h --help --deployment --force --no-wait --limit --json --bus --no-color" ;;
        fleet) words="status test commands enroll adopt -h --help --json --bus --no-color" ;;
        version) words="-h --help --agent --json --bus --no-color" ;;
        reload) words="-h --help --json --bus --no-color" ;;
        restart-runner) words="-h --help --json --bus --no-color" ;;
        completion) words="bash -h --help --json --bus --no-color" ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _stokerctl stokerctl
