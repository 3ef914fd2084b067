package trustcmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

type enrollFlags struct {
	services, meshes, tags []string
	zone, name, key        string
	life                   time.Duration
	remove                 bool
}

func enrollCommand(env *command.Env) *cobra.Command {
	var f enrollFlags
	cmd := &cobra.Command{
		Use:   "enroll NODE",
		Short: "Permit a node to be a member and to serve services",
		Long: `Signs what a node may publish: its dataplanes may have only the services, meshes, zone, and tags of
the enrollment. NODE is a name of "nearside trust show", or the ID of the node, which its agent logs
at the start. A later enrollment replaces an earlier one, and gives the name to the key of the node.

Other tags than kuma.io/service, kuma.io/zone, and kuma.io/protocol need --tag, and so do labels of
dataplanes. Zone proxies need --services '*'. Patterns may contain *.

--sign is a root key, or the key of an operator whose role has the feature enroll.`,
		Example: "  nearside trust enroll web-1 --services 'web*' --zone east\n" +
			"  nearside trust enroll db-1 --services db --tag 'version=v*' --for 720h\n" +
			"  nearside trust enroll web-1 --remove",
		Args: command.Args(1, 1, "NODE"),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.services, "services", nil, "pattern of services; repeat it for several")
	flags.StringArrayVar(&f.meshes, "meshes", nil, "pattern of meshes; repeat it for several (default: all)")
	flags.StringArrayVar(&f.tags, "tag", nil, "pattern of a tag, KEY=PATTERN; '*=*' permits all; repeat it for several")
	flags.StringVar(&f.zone, "zone", "", "zone of the node (default: its present zone, or any)")
	flags.StringVar(&f.name, "name", "", "name of a node that is not a member yet")
	flags.StringVar(&f.key, "sign", "", "file of the key that signs, or ssh-agent:COMMENT (default: "+rootKeyFile+")")
	flags.DurationVar(&f.life, "for", 0, "time until the enrollment expires; 0: never")
	flags.BoolVar(&f.remove, "remove", false, "end the enrollment")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return enroll(cmd.Context(), env, args[0], f) }
	return cmd
}

// ended returns the end of an enrollment.
func ended(id string) engine.Put {
	return engine.Put{Key: engine.Key{Kind: trust.KindEnrollment, Name: id}, Delete: true}
}

func enroll(ctx context.Context, env *command.Env, node string, f enrollFlags) error {
	if len(f.services) == 0 && !f.remove {
		return command.Usagef("--services is required: give patterns of the services of the node, such as 'web*'; " +
			"'' for none")
	}
	t, _, err := present(ctx, env)
	if err != nil {
		return err
	}
	e := &trust.Enrollment{Name: f.name, Services: f.services, Meshes: f.meshes, Zone: f.zone}
	n, err := nodeOf(t, node)
	switch {
	case err != nil:
		return err
	case n != nil:
		if e.Key, err = nodeID(n.ID); err != nil {
			return err
		}
		e.Name, e.Zone = cmp.Or(e.Name, n.Name), cmp.Or(e.Zone, n.Zone)
	default:
		if e.Key, err = nodeID(node); err != nil {
			return command.Hinted(fmt.Errorf("no node has the name or ID %s", node), "nearside trust show lists the "+
				"nodes; a node that is not a member yet has no name here, so give its ID and --name")
		}
		if e.Name == "" && !f.remove {
			return command.Usagef("--name is required, because node %s is not a member yet", node)
		}
	}
	if f.life > 0 {
		e.NotAfter = time.Now().Add(f.life).UTC().Truncate(time.Second)
	}
	for _, tag := range f.tags {
		key, pattern, err := splitPair("tag", tag)
		if err != nil {
			return err
		}
		if e.Tags == nil {
			e.Tags = map[string][]string{}
		}
		e.Tags[key] = append(e.Tags[key], pattern)
	}
	key, err := open(env, cmp.Or(f.key, rootKeyFile))
	if err != nil {
		return err
	}
	defer key.Close()
	puts := []engine.Put{ended(e.Key.String())}
	if !f.remove {
		if puts[0], err = enrollment(e); err != nil {
			return err
		}
		for _, n := range t.Nodes { // earlier keys of the name
			if n.Enrolled && n.Name == e.Name && n.ID != e.Key.String() {
				puts = append(puts, ended(n.ID))
			}
		}
	}
	if _, err := env.Client().WriteSigned(ctx, key, puts...); err != nil {
		return err
	}
	what := "is enrolled"
	if f.remove {
		what = "is no longer enrolled"
	}
	text.Printf(env.Stdout, "node %s (%s) %s\n", cmp.Or(e.Name, node), e.Key, what)
	return nil
}
