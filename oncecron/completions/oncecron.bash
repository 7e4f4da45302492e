# Completion of oncecron for bash 4.4 and newer, as `oncecron completion bash` prints it.

_oncecron() {
    local line=${COMP_LINE:0:COMP_POINT} type value
    local word=${line##*[[:blank:]]}
    # bash has split the word at : = or @, and replaces only the last part; bash-completion takes a sign for a part.
    local before=${word%"$2"}
    [[ $2 == *[!:=@]* ]] || before=$word
    COMPREPLY=()
    while IFS=$'\t' read -r type value _; do
        case $type in
        plain)
            COMPREPLY+=("${value#"$before"}")
            [[ $value == */ ]] && compopt -o nospace
            ;;
        file) compopt -o default ;;
        command) _oncecron_job "$value" "$2" ;;
        esac
    done < <(COMP_LINE=$line _ONCECRON_COMPLETE=1 "$1" 2>/dev/null)
}

# Complete the command behind the first $1 letters of the line: by its own completion where bash-completion is there.
_oncecron_job() {
    local at=0 rest=$COMP_LINE
    while ((at < COMP_CWORD && ${#COMP_LINE} - ${#rest} < $1)); do
        rest=${rest#*"${COMP_WORDS[at]}"}
        ((++at))
    done
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$at"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$at"
    elif ((at == COMP_CWORD)); then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -c -- "$2")
    else
        compopt -o default
    fi
}

complete -F _oncecron oncecron
