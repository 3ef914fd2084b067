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
		Short: "Manage the encryption keys of the gossip pool",
		Long: `A gossip pool encrypts its traffic with a key that all members share. These commands change
gossip.keyringFile, as root or as the agent's user. A running agent applies changes within seconds.
Commands identify keys by fingerprint.

To rotate the key of a pool, add the new key on all nodes, then use it on all nodes, and then remove
the old one on all nodes. Between the steps, wait until "nearside members" shows all nodes as alive.`,
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
		Long: `Prints a new 32-byte key in base64. Anyone with the key can join the pool and change every resource,
so keep it secret.`,
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
		Short: "List the keys by fingerprint",
		Long: `Lists the fingerprints of the keys in this node's keyring. The first key encrypts, and all keys
decrypt. Other members may have other keys, so run the command on each of them.`,
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
		Short: "Add a key from standard input",
		Long: `Adds a key to the end of the keyring. It decrypts at once, and encrypts after "nearside keyring
use". The key comes from standard input because other users can see arguments. The command creates
the keyring if it does not exist.`,
		Example: "  nearside keyring generate | nearside keyring add\n  nearside keyring add < new.key",
		Args:    command.Args(0, 0, "no arguments: the key comes from standard input"),
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
		Short: "Encrypt with a key",
		Long: `Encrypts the outgoing traffic of this node with a key. All members must have the key, or they cannot
decrypt the traffic of this node.`,
		Example: "  nearside keyring use 5c2f1e9ab0d34871",
	}, "used", keyring.File.Use)
}

func keyringRemoveCommand(env *command.Env) *cobra.Command {
	return keyringChange(env, &cobra.Command{
		Use:   "remove FINGERPRINT",
		Short: "Remove a key",
		Long: `Removes a key. If a member still encrypts with it, this node cannot decrypt its traffic. The key
that encrypts on this node cannot be removed.`,
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
