"""Bash completion, made from the parsers: commands, options, choices, and files where one is meant."""

from __future__ import annotations

import shlex

from arguments import Command

_HEAD = """\
# bash completion for fieldgate: made from its parsers.
_fieldgate() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} path=fieldgate words='' i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$path ${COMP_WORDS[i]}" in
"""
_TAIL = """\
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _fieldgate fieldgate
"""


def bash(top: Command) -> str:
    """The completion of a command line, to be sourced by bash 4 or later."""
    commands = list(top.all())
    below = "|".join(_quoted(each.words) for each in commands[1:])
    lines = [_HEAD + f'            {below}) path+=" ${{COMP_WORDS[i]}}" ;;', "        esac", "    done"]
    lines.append('    case "$path $prev" in')
    for command in commands:
        for option in command.options:
            if not option.value:
                continue
            pattern = "|".join(_quoted((*command.words, flag)) for flag in option.flags)
            if option.choices:
                lines.append(f"        {pattern}) words={shlex.quote(' '.join(option.choices))} ;;")
            elif option.file:
                lines.append(f"        {pattern}) compopt -o default 2>/dev/null; return ;;")
            else:
                lines.append(f"        {pattern}) return ;;")
    lines += ["    esac", '    [[ -n $words ]] || case "$path" in']
    for command in commands:
        words = [flag for option in command.options for flag in option.flags]
        words += [each.words[-1] for each in command.commands]
        words += [choice for argument in command.arguments for choice in argument.choices]
        more = " compopt -o default 2>/dev/null;" if any(each.file for each in command.arguments) else ""
        lines.append(f"        {_quoted(command.words)}) words={shlex.quote(' '.join(words))};{more} ;;")
    return "\n".join(lines) + "\n" + _TAIL


def _quoted(words: tuple[str, ...]) -> str:
    return shlex.quote(" ".join(words))
