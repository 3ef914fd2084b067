// Package trustcmd implements the commands for the trust in a pool: the trust file, enrollments of
// nodes, and keys.
package trustcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/host/signkey"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Files that trust init makes, and that other commands use by default.
const (
	rootKeyFile     = "trust-root.key"
	operatorKeyFile = "operator.key"
)

// Commands returns the commands.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{trustCommand(env), keysCommand(env), poolCommand(env)}
}

func trustCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "trust",
		Short: "Decide who may change what in a pool",
		Long: `A trust file says which operators and nodes may write which resources of a gossip pool. It lists
root keys, roles, keys, and revocations, and its root keys sign it. All nodes get it from the pool.

In the mode off, nothing is judged. In warn, nodes list the data that their signers may not write,
and in enforce, such data are not in force. docs/trust.md shows the steps from off to enforce, and
those after a lost or stolen key.`,
		Example: "  nearside trust init\n  nearside trust mode warn\n  nearside trust show\n  nearside trust mode enforce",
	}, initCommand(env), modeCommand(env), showCommand(env), enrollCommand(env), editCommand(env), updateCommand(env),
		signCommand(env))
}

// open opens a key file, or a key of the ssh-agent.
func open(env *command.Env, value string) (*signkey.Key, error) {
	return signkey.Open(value, signkey.Options{Getenv: env.Getenv, Passphrase: signkey.Terminal})
}

// rootsFlag adds --root.
func rootsFlag(cmd *cobra.Command, to *[]string) {
	cmd.Flags().StringArrayVar(to, "root", nil, "file with a root key, or ssh-agent:COMMENT; repeat it for several "+
		"(default: "+rootKeyFile+")")
}

// roots opens the root keys of --root.
func roots(env *command.Env, values []string) (out []sign.Signer, shut func(), err error) {
	var keys []*signkey.Key
	shut = func() {
		for _, k := range keys {
			k.Close()
		}
	}
	if len(values) == 0 {
		if _, err := os.Stat(rootKeyFile); err != nil {
			return nil, shut, command.Usagef("--root is required: give the file of a root key; there is no %s here", rootKeyFile)
		}
		values = []string{rootKeyFile}
	}
	for _, v := range values {
		k, err := open(env, v)
		if err != nil {
			shut()
			return nil, func() {}, err
		}
		keys, out = append(keys, k), append(out, k)
	}
	return out, shut, nil
}

// present returns the trust of the agent, which must have a trust file.
func present(ctx context.Context, env *command.Env) (*api.Trust, *trust.Envelope, error) {
	t, err := env.Client().Trust(ctx)
	if err != nil {
		return nil, nil, err
	}
	if t.File == nil {
		return t, nil, command.Hinted(errors.New("the pool has no trust file"), "make one with: nearside trust init")
	}
	e, err := trust.ParseEnvelope([]byte(t.File.Text))
	return t, e, err
}

// publish signs a trust file with root keys and sends it to the pool. Without enough signatures, it
// writes the file to path, so that other holders of root keys can sign it.
func publish(ctx context.Context, env *command.Env, t *api.Trust, e *trust.Envelope, keys []sign.Signer,
	path string) error {
	for _, k := range keys {
		if err := e.Sign(k); err != nil {
			return err
		}
	}
	next := e.Encode()
	state := trust.New(trust.Options{Cluster: t.Cluster})
	if t.File != nil {
		var err error
		if state, err = state.Adopt([]byte(t.File.Text)); err != nil {
			// The roots may be those of an earlier file; the agent has checked it.
			return fmt.Errorf("the trust file of the agent: %w", err)
		}
	}
	f, err := state.Check(next)
	if missing := (*trust.SignaturesError)(nil); errors.As(err, &missing) {
		if missing.Have == 0 {
			return command.Exit(command.ExitPermission,
				command.Hinted(errors.New("none of the keys is a root key of the trust file in force"),
					"nearside keys list shows the root keys; after the loss of all of them, see docs/trust.md"))
		}
		path = cmp.Or(path, fmt.Sprintf("trust-%d.yaml", missing.Version))
		if err := os.WriteFile(path, next, 0o644); err != nil { // #nosec G306 -- it has no secrets
			return err
		}
		text.Printf(env.Stdout, "%s has %d of %d signatures. Next, another holder of a root key runs:\n"+
			"  nearside trust update -f %s --root KEY\n", path, missing.Have, missing.Want, path)
		return command.Silent(command.ExitNo)
	}
	if err != nil {
		return command.Exit(command.ExitInvalid, err)
	}
	if t.Anchored && t.File == nil {
		if err := env.Client().AnchorTrust(ctx, next); err != nil {
			return err
		}
	}
	if _, err := env.Client().WriteSigned(ctx, keys[0], engine.Put{
		Key: engine.Key{Kind: trust.KindFile, Name: trust.FileName}, MediaType: trust.MediaFile, Body: next}); err != nil {
		return err
	}
	text.Printf(env.Stdout, "version %d of the trust file is in force: mode %s, %s\n", f.Version, f.Mode,
		plural.Count(len(f.Roots), "root key"))
	return nil
}

func showCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the trust file, nodes, and data that are not permitted",
		Long: `Shows the trust of the agent's node: the mode, the keys and roles of the trust file, the nodes with
their enrollments, and the data that their signers may not write. With --document, it prints the
document of the trust file, without its signatures.

The exit code is 2 if data are not permitted, or if the trust has a problem.`,
		Example: "  nearside trust show\n  nearside trust show -o json | jq .refused\n" +
			"  nearside trust show --document > trust.yaml",
	}
	var document bool
	cmd.Flags().BoolVar(&document, "document", false, "print the document of the trust file")
	format := command.OutputFlag(cmd, command.AsText...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if document {
			_, e, err := present(cmd.Context(), env)
			if err == nil {
				_, err = text.Verbatim(env.Stdout).Write(e.Document)
			}
			return err
		}
		t, err := env.Client().Trust(cmd.Context())
		return command.Show(env, *format, printTrust, func(t *api.Trust) bool {
			return t.Total > 0 && t.Mode != trust.ModeOff || len(t.Problems) > 0
		})(t, err)
	}
	return cmd
}

// printTrust prints the answer of trust show.
func printTrust(w io.Writer, t *api.Trust) {
	text.Printf(w, "mode %s (config: %s), members: %s\n", t.Mode, t.ConfigMode, t.Admit)
	if f := t.File; f != nil {
		from := map[string]string{"pool": "from the pool", "file": "from trust.file", "api": "from an operator"}[f.From]
		text.Printf(w, "trust file: version %d, mode %s, %d of %s must sign the next one; the first came %s at %s\n",
			f.Version, f.Mode, f.Threshold, plural.Count(len(f.Roots), "root key"), from, text.Time(f.Since))
	} else {
		text.Println(w, "trust file: none")
	}
	if t.Unsigned > 0 {
		text.Printf(w, "records without a signature: %d\n", t.Unsigned)
	}
	for _, p := range t.Problems {
		text.Printf(w, "problem: %s\n", p)
	}
	for _, x := range t.Expiring {
		text.Printf(w, "expires: %s at %s\n", x.Name, text.Time(x.NotAfter))
	}
	text.Println(w)
	text.Rows(w, t.Nodes, func(n api.TrustNode) []string {
		return []string{n.Name, n.ID, text.YesNo(n.Signed), text.YesNo(n.Enrolled), text.Some(n.Services),
			text.OrDash(n.Role)}
	}, "NODE", "ID", "SIGNS", "ENROLLED", "SERVICES", "ROLE")
	if len(t.Refused) == 0 {
		return
	}
	text.Println(w)
	text.Rows(w, t.Refused, func(r api.TrustRefusal) []string {
		name := r.Name
		if r.Mesh != "" {
			name = r.Mesh + "/" + name
		}
		return []string{r.Type, name, text.OrDash(r.Node), r.Reason}
	}, "NOT PERMITTED", "NAME", "NODE", "REASON")
	if more := t.Total - len(t.Refused); more > 0 {
		text.Printf(w, "and %d more\n", more)
	}
}

// nodeOf returns the node with a name or ID, or nil. Of several with a name, it is the live one.
func nodeOf(t *api.Trust, name string) (*api.TrustNode, error) {
	var found []*api.TrustNode
	for i := range t.Nodes {
		if n := &t.Nodes[i]; n.Name == name || n.ID == name {
			found = append(found, n)
		}
	}
	if live := slices.DeleteFunc(slices.Clone(found), func(n *api.TrustNode) bool { return !n.Live }); len(live) == 1 {
		found = live
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%d nodes have the name %s; give the ID of one: nearside trust show", len(found), name)
}

// splitPair splits KEY=VALUE.
func splitPair(flag, s string) (key, value string, err error) {
	key, value, ok := strings.Cut(s, "=")
	if !ok || key == "" || value == "" {
		return "", "", command.Usagef("--%s %q is invalid; give KEY=PATTERN", flag, s)
	}
	return key, value, nil
}
