# Completion of oncecron for bash, as `oncecron completion bash` prints it.

_oncecron() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local options= valued= words= files= at
    COMPREPLY=()
    # bash splits --format=json at the sign.
    if [[ $word == = ]]; then
        word=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W 'run history locks jobs next why audit stop release pause resume drain undrain crontab init prune flush completion --help --version' -- "$word"))
        return
    fi
    local command=${COMP_WORDS[1]}
    case $command in
    crontab)
        if ((COMP_CWORD == 2)); then
            COMPREPLY=($(compgen -W 'wrap unwrap lint --help' -- "$word"))
            return
        fi
        command+=" ${COMP_WORDS[2]}"
        ;;
    esac
    case $command in
    run)
        options='--key --shell --schedule --tz --tick --no-tick --min-gap --starting-deadline --again --wait --failover --retries --retry-delay --no-retry-on --shards --timeout --grace --skip-exit --on-store-error --connect-timeout --store --log --namespace --ttl --capture --config --verbose -c -v'
        valued='--key --shell --schedule --tz --tick --min-gap --starting-deadline --wait --retries --retry-delay --no-retry-on --shards --timeout --grace --skip-exit --on-store-error --connect-timeout --store --log --namespace --ttl --capture --config -c'
        words=''
        ;;
    history)
        options='--since --host --outcome --tick --exhausted --id --limit --skips --follow --format --json --utc --store --log --namespace --config'
        valued='--since --host --outcome --tick --id --limit --format --store --log --namespace --config'
        words=''
        ;;
    locks)
        options='--pauses --format --json --utc --store --log --namespace --config'
        valued='--format --store --log --namespace --config'
        words=''
        ;;
    jobs)
        options='--format --json --utc --store --log --namespace --config'
        valued='--format --store --log --namespace --config'
        words=''
        ;;
    next)
        options='--schedule --tz --count --since --format --json --store --log --namespace --config'
        valued='--schedule --tz --count --since --format --store --log --namespace --config'
        words=''
        ;;
    why)
        options='--tick --json --utc --store --log --namespace --config'
        valued='--tick --store --log --namespace --config'
        words=''
        ;;
    audit)
        options='--since --format --json --utc --store --log --namespace --config'
        valued='--since --format --store --log --namespace --config'
        words=''
        ;;
    stop)
        options='--shard --signal --grace --json --utc --store --log --namespace --config'
        valued='--shard --signal --grace --store --log --namespace --config'
        words=''
        ;;
    release)
        options='--shard --force --store --log --namespace --config'
        valued='--shard --store --log --namespace --config'
        words=''
        ;;
    pause)
        options='--all --for --reason --store --log --namespace --config'
        valued='--for --reason --store --log --namespace --config'
        words=''
        ;;
    resume)
        options='--all --store --log --namespace --config'
        valued='--store --log --namespace --config'
        words=''
        ;;
    drain)
        options='--store --log --namespace --config'
        valued='--store --log --namespace --config'
        words=''
        ;;
    undrain)
        options='--store --log --namespace --config'
        valued='--store --log --namespace --config'
        words=''
        ;;
    'crontab wrap')
        options='--only --tz --user-field --in-place --diff'
        valued='--only --tz'
        words=''
        files=yes
        ;;
    'crontab unwrap')
        options='--user-field --in-place --diff'
        valued=''
        words=''
        files=yes
        ;;
    'crontab lint')
        options='--require-guard --compare --user-field --json --config'
        valued='--config'
        words=''
        files=yes
        ;;
    init)
        options='--run-role --read-role --job-role --operator-role --print-sql --store --log --namespace --config'
        valued='--run-role --read-role --job-role --operator-role --store --log --namespace --config'
        words=''
        ;;
    prune)
        options='--executions --skips --store --log --namespace --config'
        valued='--executions --skips --store --log --namespace --config'
        words=''
        ;;
    flush)
        options='--store --log --namespace --config'
        valued='--store --log --namespace --config'
        words=''
        ;;
    completion)
        options=''
        valued=''
        words='bash zsh fish'
        ;;
    *)
        return
        ;;
    esac
    if [[ $command == run ]]; then
        for ((at = 2; at < COMP_CWORD; at++)); do
            case ${COMP_WORDS[at]} in
            --)
                _oncecron_job $((at + 1))
                return
                ;;
            -*)
                if [[ " $valued " == *" ${COMP_WORDS[at]} "* ]]; then
                    ((at++))
                    [[ ${COMP_WORDS[at]} == = ]] && ((at++))
                fi
                ;;
            *)
                _oncecron_job $at
                return
                ;;
            esac
        done
    fi
    if [[ " $valued " == *" $before "* ]]; then
        case $before in
        --on-store-error) COMPREPLY=($(compgen -W 'fail skip run' -- "$word")) ;;
        --store) COMPREPLY=($(compgen -W 'local postgresql:// redis:// rediss:// sqlite:///' -- "$word")) ;;
        --log) COMPREPLY=($(compgen -W 'postgresql:// sqlite:///' -- "$word")) ;;
        --outcome) COMPREPLY=($(compgen -W 'running succeeded failed timed-out stopped lost not-started unclaimed held done passed recent late paused drained exhausted broken no-store' -- "$word")) ;;
        --format) COMPREPLY=($(compgen -W 'table json ndjson csv' -- "$word")) ;;
        --signal) COMPREPLY=($(compgen -W 'TERM INT HUP QUIT USR1 USR2 KILL' -- "$word")) ;;
        --config)
            compopt -o filenames 2>/dev/null
            COMPREPLY=($(compgen -f -- "$word"))
            ;;
        esac
        return
    fi
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options --help" -- "$word"))
    elif [[ $command == run ]]; then
        _oncecron_job $COMP_CWORD
    elif [[ -n $files ]]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$word"))
    else
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    fi
}

# The command behind the options, which begins at word $1: by its own completion where bash-completion is there.
_oncecron_job() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        COMPREPLY=($(compgen -c -- "${COMP_WORDS[COMP_CWORD]}"))
    else
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    fi
}

complete -F _oncecron oncecron
