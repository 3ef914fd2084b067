package node

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func tokenKeysCommand(env *command.Env) *cobra.Command {
	type item struct {
		ID      string    `json:"kid"`
		Created time.Time `json:"created"`
		Signs   bool      `json:"signs"`
	}
	return listTokens(env, &cobra.Command{
		Use:   "keys",
		Short: "List the signing keys",
		Long: `Lists the signing keys, newest first. The newest key signs. Older keys verify their tokens until you
remove them.`,
		Example: "  nearside token keys\n  nearside token keys -o json",
	}, (*token.Keys).List, func(k token.Key) item { return item{k.ID, k.Created, k.Signs} },
		[]string{"KEY", "CREATED", "SIGNS"}, func(k item) []string {
			return []string{k.ID, text.Time(k.Created), text.YesNo(k.Signs)}
		})
}

// listTokens completes a command that lists what read returns. item converts a value to its
// document, and cells to a table row whose first cell is the name.
func listTokens[T, I any](env *command.Env, cmd *cobra.Command, read func(*token.Keys) ([]T, error), item func(T) I,
	head []string, cells func(I) []string) *cobra.Command {
	var conf command.ConfigFlags
	conf.Add(cmd)
	format := command.OutputFlag(cmd, "table", "json", "yaml", "name")
	cmd.RunE = func(*cobra.Command, []string) error {
		keys, err := openKeys(env, &conf, false)
		if err != nil {
			return err
		}
		list, err := read(keys)
		if err != nil && len(list) == 0 {
			return notPermitted(err)
		}
		warnKeys(env, err)
		items := text.Each(list, item)
		if command.PrintedNames(env, *format, items, func(i I) string { return cells(i)[0] }) {
			return nil
		}
		return command.Show(env, *format, func(w io.Writer, items []I) { text.Rows(w, items, cells, head...) })(items, nil)
	}
	return cmd
}

func tokenRotateCommand(env *command.Env) *cobra.Command {
	var (
		conf   command.ConfigFlags
		remove string
	)
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Create a signing key, or remove one",
		Long: `Creates a signing key, which signs all further tokens, and prints its id. Tokens of the other keys
stay valid.

--remove deletes a key and invalidates its tokens. Replace the tokens first, unless the key is
compromised. If the key is the one that signs, the command creates a new key first.`,
		Example: "  nearside token rotate\n  nearside token rotate --remove 20260301-120000-0a1b2c3d",
		Args:    command.Args(0, 0, "no arguments; select the key with --remove"),
	}
	conf.Add(cmd)
	cmd.Flags().StringVar(&remove, "remove", "", "id of the key to remove")
	cmd.RunE = func(*cobra.Command, []string) error {
		keys, err := openKeys(env, &conf, true)
		if err != nil {
			return err
		}
		list, err := keys.List()
		if err != nil && len(list) == 0 && remove == "" {
			return notPermitted(err)
		}
		if remove == "" || len(list) > 0 && list[0].ID == remove {
			kid, err := keys.Rotate()
			if err != nil {
				return notPermitted(err)
			}
			text.Println(env.Stdout, kid)
		}
		if remove == "" {
			warnKeys(env, err)
			return nil
		}
		if err := keys.Remove(remove); err != nil {
			return notPermitted(err)
		}
		text.Printf(env.Stderr, "removed %s; the tokens that it signed are invalid\n", remove)
		return nil
	}
	return cmd
}

func tokenRevokeCommand(env *command.Env) *cobra.Command {
	var (
		conf        command.ConfigFlags
		file, until string
	)
	cmd := &cobra.Command{
		Use:   "revoke ID|-f FILE",
		Short: "Revoke a token",
		Long: `Revokes one token, given its id or the token itself. The list of revoked tokens drops an entry when
the token expires. If you give only an id, set the expiry with --until; the default is 10 years from
now.`,
		Example: `  nearside token revoke -f web.token
  nearside token revoke 0a1b2c3d4e5f60718293a4b5c6d7e8f9 \
    --until 2026-12-31T00:00:00Z`,
		Args: command.Args(0, 1, "one ID, or the token with -f"),
	}
	conf.Add(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&file, "file", "f", "", "file with the token, or - for standard input")
	fl.StringVar(&until, "until", "", "expiry of the token, such as 2026-12-31T00:00:00Z")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		var id string
		end := time.Now().Add(token.MaxValidity)
		switch {
		case (len(args) == 0) == (file == ""):
			return command.Usagef("give either the ID of a token, or the token with -f")
		case file != "" && until != "":
			return command.Usagef("--until cannot be used with -f: the token contains its expiry")
		case until != "":
			t, err := time.Parse(time.RFC3339, until)
			if err != nil || !t.After(time.Now()) || t.After(end) {
				return command.Usagef("--until %q is invalid; give a time in the next 10 years, such as 2026-12-31T00:00:00Z",
					until)
			}
			end = t
		}
		keys, err := openKeys(env, &conf, true)
		if err != nil {
			return err
		}
		if file == "" {
			id = args[0]
		} else if id, end, err = revocable(env, keys, file); err != nil {
			return err
		}
		if err := keys.Revoke(id, end); err != nil {
			return notPermitted(err)
		}
		text.Printf(env.Stderr, "revoked %s; the entry expires at %s\n", id, text.Time(end))
		return nil
	}
	return cmd
}

// revocable returns the ID and the expiry of the token in a file. It returns an error for a token
// that is already invalid.
func revocable(env *command.Env, keys *token.Keys, file string) (id string, until time.Time, err error) {
	content, err := command.ReadToken(env, file)
	if err != nil {
		return "", time.Time{}, err
	}
	said, err := token.Decode(content)
	if err != nil {
		return "", time.Time{}, command.Exit(command.ExitInvalid, fmt.Errorf("%s: %w", file, err))
	}
	_, err = keys.Verify(content, said.Audience)
	var refused *token.Error
	switch errors.As(err, &refused); {
	case err == nil, refused.Reason == token.Revoked, refused.Reason == token.NotYetValid:
		return said.ID, said.Expires, nil
	case refused.Reason == token.Unavailable:
		return "", time.Time{}, notPermitted(keys.Err())
	}
	return "", time.Time{}, fmt.Errorf("%s: the token is already invalid: %w", file, err)
}

func tokenRevokedCommand(env *command.Env) *cobra.Command {
	type item struct {
		ID    string    `json:"id"`
		Until time.Time `json:"until"`
	}
	return listTokens(env, &cobra.Command{
		Use:     "list-revoked",
		Short:   "List the revoked tokens",
		Long:    `Lists the ids of the revoked tokens, and when the list drops each of them.`,
		Example: "  nearside token list-revoked\n  nearside token list-revoked -o json",
	}, (*token.Keys).Revocations, func(r token.Revocation) item { return item{r.ID, r.Until} }, []string{"ID", "UNTIL"},
		func(r item) []string {
			return []string{r.ID, text.Time(r.Until)}
		})
}
