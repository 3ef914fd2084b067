package trustcmd

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/host/signkey"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// operatorRole is the role that trust init gives to the operator and to the present nodes.
const operatorRole = "mesh-operator"

type initFlags struct{ root, operator, name, file string }

func initCommand(env *command.Env) *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the keys and the first trust file of a pool",
		Long: `Makes a root key and the key of an operator, unless the files exist, and a trust file with the mode
off. The trust file gives the role mesh-operator to the operator and to the present nodes, and the
command enrolls these nodes for all services, so that an open pool continues to work as before. The
operator's key signs the records of the pool that have no signature.

Run it once, on one node. Then move the root key to a place that is offline.`,
		Example: "  nearside trust init\n  nearside trust init --root-key /media/usb/root.key --name alice",
	}
	cmd.Flags().StringVar(&f.root, "root-key", rootKeyFile, "file of the root key")
	cmd.Flags().StringVar(&f.operator, "operator-key", operatorKeyFile, "file of the operator's key")
	cmd.Flags().StringVar(&f.name, "name", "", "name of the operator (default: the user)")
	cmd.Flags().StringVarP(&f.file, "file", "f", "trust.yaml", "file for a copy of the trust file")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runInit(cmd.Context(), env, f) }
	return cmd
}

func runInit(ctx context.Context, env *command.Env, f initFlags) error {
	t, err := env.Client().Trust(ctx)
	if err != nil {
		return err
	}
	if t.File != nil {
		return command.Hinted(fmt.Errorf("the pool has a trust file already (version %d)", t.File.Version),
			"change it with: nearside trust edit")
	}
	name := cmp.Or(f.name, env.Getenv("SUDO_USER"), env.Getenv("USER"), "operator")
	root, err := openOrMake(env, f.root, "root")
	if err != nil {
		return err
	}
	defer root.Close()
	operator, err := openOrMake(env, f.operator, name)
	if err != nil {
		return err
	}
	defer operator.Close()
	file := &trust.File{Cluster: t.Cluster, Version: 1, Mode: trust.ModeOff, Threshold: 1,
		Roots: []trust.Root{{Name: "root", Key: trust.PublicKey(root.Public())}},
		Roles: []trust.Role{{Name: operatorRole, Allow: access.Allow{Kinds: []string{"*"}, Verbs: []string{"*"}}}},
		Keys:  []trust.Key{{Name: name, Key: trust.PublicKey(operator.Public()), Role: operatorRole}}}
	var puts []engine.Put
	for _, n := range t.Nodes {
		if !n.Signed {
			text.Printf(env.Stderr, "warning: node %s does not sign its data, so it is not enrolled; upgrade its agent, run: "+
				"nearside trust enroll %[1]s --services '*' --tag '*=*', and add it to nodes: nearside trust edit\n", n.Name)
			continue
		}
		id, err := nodeID(n.ID)
		if err != nil {
			return err
		}
		file.Nodes = append(file.Nodes, trust.Node{Name: n.Name, Key: id, Role: operatorRole})
		put, err := enrollment(&trust.Enrollment{Key: id, Name: n.Name, Zone: n.Zone, Services: []string{"*"},
			Tags: map[string][]string{"*": {"*"}}})
		if err != nil {
			return err
		}
		puts = append(puts, put)
	}
	document, err := file.Document()
	if err != nil {
		return err
	}
	e := &trust.Envelope{Document: document}
	if err := publish(ctx, env, t, e, []sign.Signer{root}, f.file); err != nil {
		return err
	}
	if err := os.WriteFile(f.file, e.Encode(), 0o644); err != nil { // #nosec G306 -- it has no secrets
		return err
	}
	text.Printf(env.Stdout,
		"%s has a copy; set trust.file to it on nodes that should not trust the first file they receive\n", f.file)
	if len(puts) > 0 {
		if _, err := env.Client().WriteSigned(ctx, root, puts...); err != nil {
			return fmt.Errorf("the trust file is in force, but the nodes are not enrolled: %w", err)
		}
	}
	text.Printf(env.Stdout, "enrolled with the role %s: %s\n", operatorRole, nodeNames(file.Nodes))
	signed, err := resign(ctx, env, "unsigned", operator)
	if err != nil {
		return fmt.Errorf("the trust file is in force, but records have no signature: %w", err)
	}
	if signed > 0 {
		text.Printf(env.Stdout, "signed with the key of %s: %s\n", name, plural.Count(signed, "record"))
	}
	text.Println(env.Stdout, "next: nearside trust mode warn")
	return nil
}

func nodeNames(list []trust.Node) string {
	var out []string
	for _, n := range list {
		out = append(out, n.Name)
	}
	return strings.Join(out, ", ")
}

// openOrMake opens the key in a file, or makes one.
func openOrMake(env *command.Env, path, comment string) (*signkey.Key, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		id, err := generate(path, comment)
		if err != nil {
			return nil, err
		}
		text.Printf(env.Stdout, "%s has the new key %s\n", path, id)
	}
	return open(env, path)
}

// nodeID parses the ID of a node.
func nodeID(s string) (id trust.ID, err error) {
	err = id.UnmarshalText([]byte(s))
	return id, err
}

// enrollment returns the record of an enrollment.
func enrollment(e *trust.Enrollment) (engine.Put, error) {
	body, err := e.Encode()
	return engine.Put{Key: engine.Key{Kind: trust.KindEnrollment, Name: e.Key.String()}, MediaType: trust.MediaEnrollment,
		Body: body}, err
}

// resign signs records again with a key, and returns their number.
func resign(ctx context.Context, env *command.Env, signer string, key sign.Signer) (int, error) {
	records, err := env.Client().TrustRecords(ctx, signer)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, x := range records.Items {
		switch {
		case trust.Reserved(x.Type):
			continue
		case x.Record == "":
			text.Printf(env.Stderr, "warning: %s may contain secrets, which the agent does not reveal; apply its original file "+
				"again with --sign\n", x.Ref)
			continue
		}
		if err := resignOne(ctx, env, &x, key); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// decode decodes a record of the API.
func decode(x *api.TrustRecord) (*engine.Record, error) {
	b, err := base64.StdEncoding.DecodeString(x.Record)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.Ref, err)
	}
	r, err := engine.DecodeRecord(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.Ref, err)
	}
	return r, nil
}

func resignOne(ctx context.Context, env *command.Env, x *api.TrustRecord, key sign.Signer) error {
	r, err := decode(x)
	if err != nil {
		return err
	}
	if r.Deleted {
		return nil // a deletion of an open pool stays until it expires
	}
	put := engine.Put{Key: r.Key, Delete: r.Deleted, MediaType: r.MediaType, Body: r.Body, Author: r.Author}
	_, err = env.Client().WriteSigned(ctx, key, put)
	return err
}
