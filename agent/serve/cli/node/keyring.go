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
	cmd := &cobra.Command{
		Use:   "keyring",
		Short: "Make, list and change the keys of the gossip pool",
		Long: `The traffic of a gossip pool is encrypted with a key that all members have. These commands work on gossip.keyringFile, as root or as
the agent's user; a running agent takes a change over within some seconds. Keys are named by their fingerprints.

To change the key of a pool, add the new one on all nodes, use it on all nodes, and then remove the old one on all nodes. Wait between the
steps until nearside members shows all as alive.`,
		Example: "  nearside keyring generate > new.key\n  nearside keyring add < new.key\n" +
			"  nearside keyring use 5c2f1e9ab0d34871\n  nearside keyring remove 9d1b7c60f2e85a34",
		Args: command.Group,
		RunE: command.Help,
	}
	cmd.AddCommand(keyringGenerateCommand(env), keyringListCommand(env), keyringAddCommand(env), keyringUseCommand(env),
		keyringRemoveCommand(env))
	return cmd
}

// keyringOf returns the one of the agent with this config.
func keyringOf(c *command.ConfigFlags, env *command.Env) (keyring.File, error) {
	cfg, _, err := c.Load(env)
	if err != nil {
		return keyring.File{}, err
	}
	if cfg.Gossip.KeyringFile == "" {
		return keyring.File{}, command.Hinted(errors.New("gossip.keyringFile is empty"),
			"set it in the agent's config, or with --set gossip.keyringFile=FILE")
	}
	return keyring.Open(cfg.Gossip.KeyringFile), nil
}

func keyringGenerateCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "generate",
		Short: "Print a new key",
		Long: "Prints a new key of 32 bytes, in base64. Who has it is a member of the pool, " +
			"and may change everything: keep it as a secret.",
		Example: "  (umask 077; nearside keyring generate > new.key)",
		Args:    command.Args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			key := make([]byte, 32)
			_, _ = rand.Read(key) // it never fails
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
	var conf command.ConfigFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys by their fingerprints",
		Long: `Lists the keys of the pool by their fingerprints. The first one encrypts, all decrypt. What other members have is not known here: ask
on each of them.`,
		Example: "  nearside keyring list",
		Args:    command.Args(0, 0, "no arguments"),
	}
	conf.Add(cmd)
	format := command.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(*cobra.Command, []string) error {
		ring, err := keyringOf(&conf, env)
		if err != nil {
			return err
		}
		list, err := ring.List()
		if err != nil {
			return notPermitted(err)
		}
		items := make([]item, len(list))
		for i, id := range list {
			items[i] = item{id, i == 0}
		}
		if ok, err := command.Printed(env, *format, items); ok {
			return err
		}
		t := text.NewTable(env.Stdout, "KEY", "ENCRYPTS")
		for _, i := range items {
			t.Row(i.Fingerprint, map[bool]string{true: "yes", false: "no"}[i.Encrypts])
		}
		return t.Flush()
	}
	return cmd
}

func keyringAddCommand(env *command.Env) *cobra.Command {
	var conf command.ConfigFlags
	cmd := &cobra.Command{
		Use:   "add < FILE",
		Short: "Add a key that is read from the standard input",
		Long: "Adds a key behind the others: it decrypts from then on, and encrypts once it is used. " +
			"It is read from the standard input, since others see arguments. A keyring that does not exist is made.",
		Example: "  nearside keyring generate | nearside keyring add\n  nearside keyring add < new.key",
		Args:    command.Args(0, 0, "no arguments: the key is read from the standard input"),
	}
	conf.Add(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		ring, err := keyringOf(&conf, env)
		if err != nil {
			return err
		}
		content, err := io.ReadAll(io.LimitReader(env.Stdin, 4096))
		if err != nil {
			return err
		}
		id, err := ring.Add(string(content))
		if err != nil {
			return notPermitted(err)
		}
		text.Println(env.Stdout, "added "+id)
		return nil
	}
	return cmd
}

func keyringUseCommand(env *command.Env) *cobra.Command {
	return keyringChange(env, "use FINGERPRINT", "Let a key encrypt",
		"Lets a key encrypt what this node sends. All members must have it by then, or they do not understand this node.",
		"  nearside keyring use 5c2f1e9ab0d34871", "used", keyring.File.Use)
}

func keyringRemoveCommand(env *command.Env) *cobra.Command {
	return keyringChange(env, "remove FINGERPRINT", "Remove a key",
		"Removes a key. No member may encrypt with it by then, or this node does not understand it. The key that encrypts "+
			"here is not removed.", "  nearside keyring remove 9d1b7c60f2e85a34", "removed", keyring.File.Remove)
}

func keyringChange(env *command.Env, use, short, long, example, done string,
	change func(keyring.File, string) error) *cobra.Command {
	var conf command.ConfigFlags
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: command.Args(1, 1, "FINGERPRINT")}
	conf.Add(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		ring, err := keyringOf(&conf, env)
		if err != nil {
			return err
		}
		if err := change(ring, args[0]); err != nil {
			return notPermitted(err)
		}
		text.Println(env.Stdout, done+" "+args[0])
		return nil
	}
	return cmd
}
