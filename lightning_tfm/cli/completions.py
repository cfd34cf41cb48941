"""`completions`: bash | zsh | fish: a script that completes verbs, options, their values, and files."""

from collections.abc import Sequence

from lightning_tfm.cli.arguments import make_parser, parse_plain

BASH = """_lightning_tfm() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} found name values
    if [ "$COMP_CWORD" = 1 ]; then
        found="VERBS"
    else
        [ "$verb" = "$_lightning_tfm_verb" ] || _lightning_tfm_names=$(lightning-tfm "$verb" --help names 2>/dev/null)
        _lightning_tfm_verb=$verb
        while read -r name values; do
            [[ $name != "$before" && "$COMP_CWORD $name" != "2 action" ]] || found+=" $values"
            [[ $word != -* ]] || found+=" $name"
        done <<<"$_lightning_tfm_names"
    fi
    COMPREPLY=($(compgen -W "$found" -- "$word"))
}
complete -o default -F _lightning_tfm lightning-tfm
"""
ZSH = """_lightning_tfm() {
    local -a names found
    if (( CURRENT == 2 )); then compadd VERBS; return; fi
    names=(${(f)"$(lightning-tfm $words[2] --help names 2>/dev/null)"})
    found=(${=${(M)names:#$words[CURRENT-1] *}#* })
    (( CURRENT > 3 )) || found+=(${=${(M)names:#action *}#* })
    [[ $words[CURRENT] != -* ]] || found=(${names%% *})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _lightning_tfm lightning-tfm
"""
FISH = """function __lightning_tfm
    set -l words (commandline -opc)
    set -l names (lightning-tfm $words[2] --help names 2>/dev/null)
    set -l asked $words[-1]
    test (count $words) -gt 2; or set -a asked action
    set -l found
    for option in (string escape --style=regex -- $asked)
        set -a found (string replace -rf "^$option " '' -- $names | string split -n ' ')
    end
    string match -q -- '-*' (commandline -ct); and set found (string replace -r ' .*' '' -- $names)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c lightning-tfm -n "test (count (commandline -opc)) = 1" -f -a "VERBS"
complete -c lightning-tfm -n "test (count (commandline -opc)) -gt 1" -f -a "(__lightning_tfm)"
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
"""shell -> the script it reads once: options come from `--help names` of the typed verb"""


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Print a script that completes the command line in a shell.", experiment=False)
    parser.add_action(*SCRIPTS, text='bash: eval "$(lightning-tfm completions bash)"; so zsh; fish: … | source')
    from lightning_tfm.cli.main import VERBS

    print(SCRIPTS[parse_plain(parser, argv)["action"]].replace("VERBS", " ".join(VERBS)), end="")
    return 0
