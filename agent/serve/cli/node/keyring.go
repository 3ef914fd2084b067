package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/host/keyring"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func keyringCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "keyring",
		Short: "Manage the encryption keys of the gossip pool",
		Long: `A gossip pool encrypts its traffic with a key that all members share. These commands change
gossip.keyringFile, as root or as the agent's user, and ask the running agent which keys it and the
other live nodes have loaded. Without an agent, they change only the file, and say so. Commands
identify keys by fingerprint, and the agent never sends a key.

To rotate the key of a pool, add the new key on all nodes, then use it on all nodes, and then remove
the old one on all nodes. Between the steps, wait until "nearside keyring list" shows that no node
misses the key.`,
		Example: "  nearside keyring generate > new.key\n  nearside keyring add < new.key\n" +
			"  nearside keyring use 5c2f1e9ab0d34871\n  nearside keyring remove 9d1b7c60f2e85a34",
	}, keyringGenerateCommand(env), keyringListCommand(env), keyringAddCommand(env), keyringUseCommand(env),
		keyringRemoveCommand(env))
}

// withKeyring completes a command that works on the keyring of the agent's config.
func withKeyring(env *command.Env, cmd *cobra.Command,
	run func(ctx context.Context, ring poolKeyring, args []string) error) *cobra.Command {
	var conf command.ConfigFlags
	conf.Add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, _, err := conf.Load(env)
		switch {
		case err != nil:
			return err
		case cfg.Gossip.KeyringFile == "":
			return command.Hinted(errors.New("gossip.keyringFile is empty"),
				"set it in the agent's config, or with --set gossip.keyringFile=FILE")
		}
		ring := poolKeyring{keyring.Open(cfg.Gossip.KeyringFile), env, cfg.Gossip.KeyringFile, cfg.API.Socket.Path,
			keyringWritable(cfg)}
		return notPermitted(run(cmd.Context(), ring, args))
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

// listedKey is a key in the output of "keyring list".
type listedKey struct {
	Fingerprint string `json:"fingerprint"`
	Encrypts    bool   `json:"encrypts"`         // the first key of the agent, or of the file if no agent responds
	InFile      bool   `json:"inFile"`           // gossip.keyringFile has it
	Loaded      *bool  `json:"loaded,omitempty"` // the agent uses it; absent if no agent responds
	// other nodes that encrypt with the key, and those that do not have it
	EncryptsOn []string `json:"encryptsOn,omitempty"`
	MissingOn  []string `json:"missingOn,omitempty"`
}

func keyringListCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys by fingerprint",
		Long: `Lists the keys of the keyring file, of the agent, and of the other live nodes of the pool, by
fingerprint. FILE is yes if gossip.keyringFile has the key, and AGENT is yes if the agent has loaded
it. ENCRYPTS marks the key that encrypts on this node. MISSING-ON names nodes without the key.

If no agent responds, the command lists only the file, and says so on standard error.`,
		Example: "  nearside keyring list\n  nearside keyring list -o json | jq '.[] | select(.missingOn)'",
	}
	format := command.OutputFlag(cmd, command.AsTable...)
	return withKeyring(env, cmd, func(ctx context.Context, ring poolKeyring, _ []string) error {
		file, err := ring.List()
		if err != nil {
			return err
		}
		pool := ring.ask(ctx)
		items := listedKeys(file, pool)
		return command.Show(env, *format, func(w io.Writer, items []listedKey) {
			if pool == nil {
				text.Rows(w, items, func(i listedKey) []string {
					return []string{i.Fingerprint, text.YesNo(i.Encrypts)}
				}, "KEY", "ENCRYPTS")
				return
			}
			text.Rows(w, items, func(i listedKey) []string {
				return []string{i.Fingerprint, text.YesNo(i.InFile), text.YesNo(*i.Loaded), text.YesNo(i.Encrypts),
					text.Some(i.MissingOn)}
			}, "KEY", "FILE", "AGENT", "ENCRYPTS", "MISSING-ON")
		})(items, nil)
	})
}

// listedKeys joins the keys of the file with those of the pool, which is nil if no agent responds.
func listedKeys(file []string, pool *api.Keyring) (items []listedKey) {
	if pool == nil {
		for i, id := range file {
			items = append(items, listedKey{Fingerprint: id, Encrypts: i == 0, InFile: true})
		}
		return items
	}
	for _, k := range pool.Items {
		items = append(items, listedKey{Fingerprint: k.Fingerprint, Encrypts: k.Encrypts, Loaded: &k.Loaded,
			InFile: slices.Contains(file, k.Fingerprint), EncryptsOn: k.EncryptsOn, MissingOn: k.MissingOn})
	}
	for _, id := range file {
		if !slices.ContainsFunc(items, func(k listedKey) bool { return k.Fingerprint == id }) {
			items = append(items, listedKey{Fingerprint: id, InFile: true, Loaded: new(bool)})
		}
	}
	return items
}

// poolKeyring is the keyring file of the config, and the pool that uses it.
type poolKeyring struct {
	keyring.File
	env          *command.Env
	path, socket string
	writable     error // why the keyring must not be created, or nil
}

// keyringTimeout limits the question to the agent, which asks the other nodes.
const keyringTimeout = 10 * time.Second

// ask returns the keys of the pool. It returns nil if no agent of the pool uses the file, and says
// why on standard error.
func (k *poolKeyring) ask(ctx context.Context) *api.Keyring {
	socket := k.socket // of the same config as the file
	if k.env.NamesSocket() {
		socket = k.env.Socket()
	}
	got, err := client.New(socket, keyringTimeout).Keyring(ctx)
	if err != nil {
		text.Printf(k.env.Stderr, "note: only the keys in %s are known, because the agent does not report its keys: %v\n",
			k.path, err)
		return nil
	}
	if !sameFile(got.File, k.path) {
		text.Printf(k.env.Stderr, "note: only the keys in %s are known, because the agent uses %s\n", k.path,
			cmp.Or(got.File, "no keyring"))
		return nil
	}
	if got.Error != "" {
		text.Printf(k.env.Stderr, "warning: the agent keeps its previous keys: %s\n", got.Error)
	}
	for _, n := range got.Unanswered {
		text.Printf(k.env.Stderr, "node %s: %s\n", n.Name, n.Reason)
	}
	if len(got.Unasked) > 0 {
		text.Printf(k.env.Stderr, "not asked, because dead: %s\n", strings.Join(got.Unasked, ", "))
	}
	return got
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// report says how the agent and the pool use a changed key.
func (k *poolKeyring) report(ctx context.Context, id string) {
	pool := k.ask(ctx)
	if pool == nil || pool.Error != "" {
		return
	}
	i := slices.IndexFunc(pool.Items, func(x api.PoolKey) bool { return x.Fingerprint == id })
	if i < 0 {
		text.Println(k.env.Stdout, "no live node has it")
		return
	}
	x := pool.Items[i]
	switch missing := strings.Join(x.MissingOn, ", "); {
	case !x.Loaded && len(x.EncryptsOn) > 0:
		text.Printf(k.env.Stderr, "warning: nodes encrypt with it, and this node cannot decrypt their traffic: %s\n",
			strings.Join(x.EncryptsOn, ", "))
	case !x.Loaded:
		text.Printf(k.env.Stdout, "the agent has removed it; other nodes still have it\n")
	case x.Encrypts && missing != "":
		text.Printf(k.env.Stderr, "warning: nodes do not have it, and cannot decrypt the traffic of this node: %s\n", missing)
	case missing != "":
		text.Printf(k.env.Stdout, "the agent has loaded it; nodes without it: %s\n", missing)
	case len(pool.Unanswered) > 0 || pool.Nodes == 1:
		text.Println(k.env.Stdout, "the agent has loaded it")
	default:
		text.Printf(k.env.Stdout, "the agent and %s have loaded it\n", plural.Count(pool.Nodes-1, "other live node"))
	}
}

func keyringAddCommand(env *command.Env) *cobra.Command {
	return withKeyring(env, &cobra.Command{
		Use:   "add < FILE",
		Short: "Add a key from standard input",
		Long: `Adds a key to the end of the keyring. It decrypts at once, and encrypts after "nearside keyring
use". The key comes from standard input because other users can see arguments. The command creates
the keyring if it does not exist, and names the live nodes that do not have the key yet.`,
		Example: "  nearside keyring generate | nearside keyring add\n  nearside keyring add < new.key",
		Args:    command.Args(0, 0, "no arguments: the key comes from standard input"),
	}, func(ctx context.Context, ring poolKeyring, _ []string) error {
		if ring.writable != nil {
			return ring.writable
		}
		key, err := io.ReadAll(io.LimitReader(env.Stdin, 4096))
		if err != nil {
			return err
		}
		id, err := ring.Add(string(key))
		if err == nil {
			text.Println(env.Stdout, "added "+id)
			ring.report(ctx, id)
		}
		return err
	})
}

func keyringUseCommand(env *command.Env) *cobra.Command {
	return keyringChange(env, &cobra.Command{
		Use:   "use FINGERPRINT",
		Short: "Encrypt with a key",
		Long: `Encrypts the outgoing traffic of this node with a key. All members must have the key, or they cannot
decrypt the traffic of this node. The command warns if a live node does not have it.`,
		Example: "  nearside keyring use 5c2f1e9ab0d34871",
	}, "used", keyring.File.Use)
}

func keyringRemoveCommand(env *command.Env) *cobra.Command {
	return keyringChange(env, &cobra.Command{
		Use:   "remove FINGERPRINT",
		Short: "Remove a key",
		Long: `Removes a key. If a member still encrypts with it, this node cannot decrypt its traffic, and the
command warns. The key that encrypts on this node cannot be removed.`,
		Example: "  nearside keyring remove 9d1b7c60f2e85a34",
	}, "removed", keyring.File.Remove)
}

func keyringChange(env *command.Env, cmd *cobra.Command, done string,
	change func(keyring.File, string) error) *cobra.Command {
	cmd.Args = command.Args(1, 1, "FINGERPRINT")
	return withKeyring(env, cmd, func(ctx context.Context, ring poolKeyring, args []string) error {
		err := change(ring.File, args[0])
		if err == nil {
			text.Println(env.Stdout, done+" "+args[0])
			ring.report(ctx, args[0])
		}
		return err
	})
}
