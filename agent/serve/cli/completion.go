package cli

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

func completionCommand(env *command.Env) *cobra.Command {
	shells := []string{"bash", "fish", "powershell", "zsh"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a shell completion script",
		Long: `Prints a script that completes commands, flags, types, and the names of resources. The names come
from the running agent. SHELL is ` + strings.Join(shells, ", ") + ".",
		Example: `  source <(nearside completion bash)
  nearside completion zsh > "${fpath[1]}/_nearside"
  nearside completion fish > ~/.config/fish/completions/nearside.fish`,
		Args:                  command.Args(1, 1, "one SHELL: "+strings.Join(shells, ", ")),
		ValidArgs:             shells,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return bashCompletion(root, env.Stdout)
			case "fish":
				return root.GenFishCompletion(env.Stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(env.Stdout)
			case "zsh":
				return root.GenZshCompletion(env.Stdout)
			}
			return command.Usagef("unknown SHELL %q; use one of %s", args[0], strings.Join(shells, ", "))
		},
	}
}

// bashWords replaces a function of the package bash-completion, so that the script needs only Bash.
// Bash splits words at = and :, as in --mesh=shop and backend:80.
const bashWords = `# Joins the words that Bash has split at = and :, and cuts the current one at the cursor.
__nearside_words()
{
    local line=$COMP_LINE rest after i n=-1
    words=()
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        rest=${line#"${line%%[![:space:]]*}"}
        if ((i > 0)) && [[ $rest == "$line" && ${COMP_WORDS[i-1]}${COMP_WORDS[i]} == *[=:]* ]]; then
            words[n]+=${COMP_WORDS[i]}
        else
            words[++n]=${COMP_WORDS[i]}
        fi
        line=${rest#"${COMP_WORDS[i]}"}
        ((i == COMP_CWORD)) && cword=$n
    done
    after=${COMP_LINE:COMP_POINT}
    cur=${words[cword]%"${after%%[[:space:]]*}"}
    words[cword]=$cur
    prev=${words[cword > 0 ? cword - 1 : 0]}
}

`

// bashCompletion writes a completion script that works without the package bash-completion.
func bashCompletion(root *cobra.Command, w io.Writer) error {
	var script bytes.Buffer
	if err := root.GenBashCompletionV2(&script, true); err != nil {
		return err
	}
	const theirs, ours = `_get_comp_words_by_ref "$@" cur prev words cword`, "__nearside_words"
	if strings.Count(script.String(), theirs) != 1 {
		return errors.New("internal error: the script of cobra has another form")
	}
	_, err := io.WriteString(w, bashWords+strings.Replace(script.String(), theirs, ours, 1))
	return err
}
