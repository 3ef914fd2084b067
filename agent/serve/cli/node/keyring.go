package node

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/host/keyring"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func keyringCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "keyring",
		Short: "Make, list and change the keys of the gossip pool",
		Long: `The traffic of a gossip pool is encrypted with a key that all members have. These commands work on gossip.keyringFile, as root or as
the agent's user; a running agent takes a change over within some seconds. Keys are named by their fingerprints.

To change the key of a pool, add the new one on all nodes, use it on all nodes, and then remove the old one on all nodes. Wait between the
steps until nearside members shows all as alive.`,
		Example: "  nearside keyring generate > new.key\n  nearside keyring add < new.key\n" +
			"  nearside keyring use 5c2f1e9ab0d34871\n  nearside keyring remove 9d1b7c60f2e85a34",
	}, keyringGenerateCommand(env), keyringListCommand(env), keyringAddCommand(env), keyringUseCommand(env),
		keyringRemoveCommand(env))
}

// withKeyring completes a command that works on the keyring of the agent's config.
func withKeyring(env *command.Env, cmd *cobra.Command,
	run func(ring keyring.File, args []string) error) *cobra.Command {
	var conf command.ConfigFlags
	conf.Add(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		cfg, _, err := conf.Load(env)
		switch {
		case err != nil:
			return err
		case cfg.Gossip.KeyringFile == "":
			return command.Hinted(errors.New("gossip.keyringFile is empty"),
				"set it in the agent's config, or with --set gossip.keyringFile=FILE")
		}
		return notPermitted(run(keyring.Open(cfg.Gossip.KeyringFile), args))
	}
	return cmd
}

func keyringGenerateCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "generate",
		Short: "Print a new key",
		Long: "Prints a new key of 32 bytes, in base64. Who has it is a member of the pool, " +
			"and may change everything: keep it as a secret.",
		Example: "  (umask 077; nearside keyring generate > new.key)",
		RunE: func(*cobra.Command, []string) error {
			key := make([]byte, 32)
			_, _ = rand.Read(key) // never fails
			text.Println(env.Stdout, base64.StdEncoding.EncodeToString(key))
			return nil
		},
	}
}

func keyringListCommand(env *command.Env) *cobra.Command {
	type item struct {
		Fingerprint string `json:"fingerprint"`
		Encrypts    bool   `json:"encrypts"`
	}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys by their fingerprints",
		Long: `Lists the keys of the pool by their fingerprints. The first one encrypts, all decrypt. What other members have is not known here: ask
on each of them.`,
		Example: "  nearside keyring list",
	}
	format := command.OutputFlag(cmd, command.AsTable...)
	return withKeyring(env, cmd, func(ring keyring.File, _ []string) error {
		list, err := ring.List()
		items := make([]item, len(list))
		for i, id := range list {
			items[i] = item{id, i == 0}
		}
		return command.Show(env, *format, func(w io.Writer, items []item) {
			text.Rows(w, items, func(i item) []string {
				return []string{i.Fingerprint, text.YesNo(i.Encrypts)}
			}, "KEY", "ENCRYPTS")
		})(items, err)
	})
}

func keyringAddCommand(env *command.Env) *cobra.Command {
	return withKeyring(env, &cobra.Command{
		Use:   "add < FILE",
		Short: "Add a key that is read from the standard input",
		Long: "Adds a key behind the others: it decrypts from then on, and encrypts once it is used. " +
			"It is read from the standard input, since others see arguments. A keyring that does not exist is made.",
		Example: "  nearside keyring generate | nearside keyring add\n  nearside keyring add < new.key",
		Args:    command.Args(0, 0, "no arguments: the key is read from the standard input"),
	}, func(ring keyring.File, _ []string) error {
		key, err := io.ReadAll(io.LimitReader(env.Stdin, 4096))
		if err != nil {
			return err
		}
		id, err := ring.Add(string(key))
		if err == nil {
			text.Println(env.Stdout, "added "+id)
		}
		return err
	})
}

func keyringUseCommand(env *command.Env) *cobra.Command {
	return keyringChange(env, &cobra.Command{
		Use:   "use FINGERPRINT",
		Short: "Let a key encrypt",
		Long: "Lets a key encrypt what this node sends. All members must have it by then, or they do not understand this " +
			"node.",
		Example: "  nearside keyring use 5c2f1e9ab0d34871",
	}, "used", keyring.File.Use)
}

func keyringRemoveCommand(env *command.Env) *cobra.Command {
	return keyringChange(env, &cobra.Command{
		Use:   "remove FINGERPRINT",
		Short: "Remove a key",
		Long: "Removes a key. No member may encrypt with it by then, or this node does not understand it. The key that " +
			"encrypts here is not removed.",
		Example: "  nearside keyring remove 9d1b7c60f2e85a34",
	}, "removed", keyring.File.Remove)
}

func keyringChange(env *command.Env, cmd *cobra.Command, done string,
	change func(keyring.File, string) error) *cobra.Command {
	cmd.Args = command.Args(1, 1, "FINGERPRINT")
	return withKeyring(env, cmd, func(ring keyring.File, args []string) error {
		err := change(ring, args[0])
		if err == nil {
			text.Println(env.Stdout, done+" "+args[0])
		}
		return err
	})
}
