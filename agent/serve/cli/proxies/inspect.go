// Package proxies implements the commands for proxies: bootstrap, config, explanations, and the
// admin interface of Envoy.
package proxies

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/resources"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func inspectCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:     "inspect",
		Short:   "Show the config and sync status of proxies",
		Example: "  nearside inspect dataplanes\n  nearside inspect dataplane web --type=config -o json",
		Args:    func(cmd *cobra.Command, args []string) error { return inspectGroup(env, cmd, args) },
	}, inspectDataplanesCommand(env), inspectDataplaneCommand(env), inspectServicesCommand(env),
		inspectZoneCommand(env, node.ProxyEgress, "zoneegresses"),
		inspectZoneCommand(env, node.ProxyIngress, "zoneingresses"))
}

// inspectGroup is [command.Group] for an argument that may be a dataplane or a type.
func inspectGroup(env *command.Env, cmd *cobra.Command, args []string) error {
	err := command.Group(cmd, args)
	if err == nil {
		return nil
	}
	quick := env.Quick(command.CompletionTime)
	if command.SelectMesh(cmd.Context(), env, nil) != nil {
		return err
	}
	if names, nerr := quick.Names(cmd.Context(), "dataplanes", env.Mesh, args[0]); nerr == nil &&
		slices.Contains(names, args[0]) {
		return command.Usagef("%q is the name of a dataplane; did you mean %s dataplane %s?",
			args[0], cmd.CommandPath(), args[0])
	}
	kinds, kerr := quick.Kinds(cmd.Context())
	if kerr != nil {
		return err
	}
	switch k, kerr := command.FindKind(kinds, args[0]); {
	case kerr != nil:
		return err
	case k.Policy:
		return command.Usagef("%s shows proxies; to explain a %s, use nearside explain policy %s/NAME --dataplane NAME",
			cmd.CommandPath(), k.Kind, args[0])
	default:
		return command.Usagef("%s shows proxies; to show this type, use nearside get %s", cmd.CommandPath(), args[0])
	}
}

func inspectDataplanesCommand(env *command.Env) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "dataplanes",
		Short: "List the proxies and their sync status",
		Long: `Lists every Dataplane of a mesh, and every client that requests config from this agent. STATE is
synced, pending (an answer is outstanding), rejected (the proxy rejected something and keeps its
previous config), refused (the agent refuses the client; REASON says who, since when, and why),
unknown (the client requests a Dataplane that does not exist), disconnected (no client on this
node), or elsewhere (the Dataplane belongs to another node of the pool).

-o wide adds how many services each proxy reaches, out of those that it would reach without lists
and permissions (CLUSTERS), and roughly how many bytes of config this saves (SAVED).`,
		Example: "  nearside inspect dataplanes\n  nearside inspect dataplanes -A -o wide",
	}
	command.MeshFlag(env, cmd)
	cmd.Flags().BoolVarP(&all, "all-meshes", "A", false, "list all meshes")
	format := command.OutputFlag(cmd, "table", "wide", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var include []string
		if *format == "wide" {
			include = []string{"reach"}
		}
		if !all {
			if err := command.SelectMesh(cmd.Context(), env, nil); err != nil {
				return err
			}
		}
		ps, err := env.Client().Proxies(cmd.Context(), include...)
		if err != nil {
			return err
		}
		ps.Items = slices.DeleteFunc(ps.Items, func(p api.Proxy) bool {
			return p.Mesh == "" || !all && p.Mesh != env.Mesh
		})
		ps.Total = len(ps.Items)
		if command.PrintedNames(env, *format, ps.Items, func(p api.Proxy) string {
			if all {
				return "dataplane/" + p.Mesh + "/" + p.Name
			}
			return "dataplane/" + p.Name
		}) {
			return nil
		}
		return command.Show(env, *format, func(w io.Writer, ps *api.Proxies) {
			text.Proxies(w, ps.Items, *format == "wide")
		})(ps, nil)
	}
	return cmd
}

// Values of --type.
const (
	typeConfig   = "config"
	typeRules    = "rules"
	typePolicies = "policies"
	typeStatus   = "status"
)

// inspection holds the flags of "inspect dataplane".
type inspection struct {
	files        command.FileFlags
	typ          string
	include      []string
	backend      string
	dump, shadow bool
	computed     bool
}

func inspectDataplaneCommand(env *command.Env) *cobra.Command {
	var in inspection
	cmd := &cobra.Command{
		Use:   "dataplane NAME",
		Short: "Show the config of a proxy with its reasons, or its sync status",
		Long: `Shows one aspect of a proxy: its xDS config (--type=config), the merged rules of its policies
(--type=rules), the policies that select it, with their effect, and the services that it reaches
(--type=policies), or the versions that it was sent, acknowledged, and rejected, and the
destinations outside the mesh that it may reach (--type=status).

--shadow includes shadow policies. --include=diff adds an RFC 6902 patch from the current to the
shown state; the table describes it in words, with the policy behind each change. --include=fields
adds the policy behind each field of a rule, which the table always shows. --computed shows the
config before the check withholds parts of it. -o json prints the documents of the API.

With -f, the answer comes only from these resources, without an agent; NEARSIDE_NODE_ZONE sets the
zone.`,
		Example: `  nearside inspect dataplane web
  nearside inspect dataplane web --type=rules
  nearside inspect dataplane web --type=status
  nearside inspect dataplane web --shadow --include=diff -o json
  nearside inspect dataplane web -m shop -f resources/ -o json`,
		Args:              command.Args(1, 1, "the NAME of a dataplane"),
		ValidArgsFunction: command.CompleteNamesOf(env, "dataplanes"),
	}
	command.MeshFlag(env, cmd)
	in.files.Add(cmd, "compute offline from these resources")
	fl := cmd.Flags()
	command.ChoiceFlag(cmd, &in.typ, "type", "", "what to show: ", typeConfig, typeRules, typePolicies, typeStatus)
	fl.BoolVar(&in.dump, "config-dump", false, "same as --type=config")
	fl.BoolVar(&in.shadow, "shadow", false, "include shadow policies")
	fl.BoolVar(&in.computed, "computed", false, "show the computed config, including what the check withholds")
	fl.StringSliceVar(&in.include, "include", nil, "what to add: diff, and for rules also fields")
	fl.StringVar(&in.backend, "backend", "",
		"with --type=policies, show whether this service is reached: NAME, KIND/NAME, or KIND/NAME:PORT")
	_ = cmd.RegisterFlagCompletionFunc("include",
		cobra.FixedCompletions([]string{"diff", "fields"}, cobra.ShellCompDirectiveNoFileComp))
	format := command.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if in.dump && fl.Changed("type") && in.typ != typeConfig {
			return command.Usagef("--config-dump is the same as --type=config; omit one of them")
		}
		if in.computed && (in.typ != typeConfig || in.shadow) {
			return command.Usagef("--computed requires --type=config without --shadow, which always shows the computed config")
		}
		if in.backend != "" && in.typ != typePolicies {
			return command.Usagef("--backend requires --type=policies")
		}
		switch {
		case in.typ == typePolicies && (in.shadow || len(in.include) > 0):
			return command.Usagef("--shadow and --include require --type=config or --type=rules")
		case in.typ == typeStatus && (in.shadow || len(in.include) > 0 || len(in.files.Paths) > 0):
			return command.Usagef("--shadow, --include, and -f cannot be used with --type=status, " +
				"which shows what the agent has sent")
		}
		name, err := command.DataplaneName(cmd.Context(), env, &in.files, args[0])
		if err != nil {
			return err
		}
		switch in.typ {
		case typeRules:
			return inspectRules(env, cmd, &in, name, *format)
		case typePolicies:
			return inspectPolicies(env, cmd, &in, name, *format)
		case typeStatus:
			return command.Show(env, *format, text.ProxyStatus)(env.Client().Proxy(cmd.Context(), env.Mesh, name))
		}
		return inspectConfig(env, cmd, &in, name, *format)
	}
	return cmd
}

// includes validates --include and reports whether it has an item.
func (in *inspection) includes(item string, possible ...string) (bool, error) {
	for _, i := range in.include {
		if !slices.Contains(possible, i) {
			return false, command.Usagef("--include %q is invalid; --type=%s allows %s",
				i, in.typ, strings.Join(possible, " and "))
		}
	}
	return slices.Contains(in.include, item), nil
}

func inspectConfig(env *command.Env, cmd *cobra.Command, in *inspection, name, format string) error {
	diff, err := in.includes("diff", "diff")
	if err != nil {
		return err
	}
	o := render.ConfigOptions{Shadow: in.shadow, Diff: diff, Computed: in.computed}
	c, err := command.Answer(env, &in.files, func() (*api.Config, error) {
		return env.Client().Config(cmd.Context(), env.Mesh, name, o)
	}, func(off *offline.Offline, zone string) (*api.Config, []string, error) {
		return off.Config(zone, env.Mesh, name, o)
	})
	if err = command.Show(env, format, text.Config)(c, err); err != nil || !diff || command.IsDocument(format) {
		return err
	}
	return inspectDiff(cmd.Context(), env, in, name, len(c.Diff), func(p *api.ProxyDiff) {
		text.ConfigItems(env.Stdout, &p.Config)
	})
}

// inspectDiff writes the difference between the shown and the current state of a proxy. operations
// is the number of patch operations.
func inspectDiff(ctx context.Context, env *command.Env, in *inspection, name string, operations int,
	show func(*api.ProxyDiff)) error {
	text.Printf(env.Stdout, "\nDIFF: %s\n", plural.Count(operations, "operation"))
	if operations == 0 {
		return nil
	}
	d, err := resources.Compare(ctx, env,
		&resources.Comparison{Against: in.files, Shadow: true, Mesh: env.Mesh, Dataplane: name, Omit: []string{"patch"}})
	if err != nil {
		return err
	}
	for i := range d.Proxies {
		show(&d.Proxies[i])
	}
	return nil
}

// inspectZoneCommand returns the command that shows a zone proxy.
func inspectZoneCommand(env *command.Env, t node.Type, plural string) *cobra.Command {
	var files command.FileFlags
	var typ string
	kind := t.Kind()
	name := strings.ToLower(kind)
	cmd := &cobra.Command{
		Use:   name + " NAME",
		Short: "Show the config of a " + kind + ", or its sync status",
		Long: `Shows the xDS config of the proxy of a ` + kind + `, computed from all meshes (--type=config), or
the versions that it was sent, acknowledged, and rejected (--type=status).

With -f, the config comes only from these resources, without an agent; NEARSIDE_NODE_ZONE sets the
zone.`,
		Example: "  nearside inspect " + name + " " + string(t) + "-1\n  nearside inspect " + name + " " + string(t) +
			"-1 --type=status",
		Args:              command.Args(1, 1, "the NAME of a "+kind),
		ValidArgsFunction: command.CompleteNamesOf(env, plural),
	}
	files.Add(cmd, "compute offline from these resources")
	command.ChoiceFlag(cmd, &typ, "type", "", "what to show: ", typeConfig, typeStatus)
	format := command.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := command.ZoneProxy(env, t, args[0])
		if err != nil {
			return err
		}
		if typ == typeStatus {
			if len(files.Paths) > 0 {
				return command.Usagef("-f cannot be used with --type=status, which shows what the agent has sent")
			}
			return command.Show(env, *format, text.ProxyStatus)(env.Client().ZoneProxy(cmd.Context(), plural, name))
		}
		return command.Show(env, *format, text.Config)(command.Answer(env, &files, func() (*api.Config, error) {
			return env.Client().ZoneConfig(cmd.Context(), plural, name)
		}, func(o *offline.Offline, zone string) (*api.Config, []string, error) {
			return o.ZoneConfig(zone, node.Ref{Type: t, Name: name})
		}))
	}
	return cmd
}

// inspectRules implements --type=rules.
func inspectRules(env *command.Env, cmd *cobra.Command, in *inspection, name, format string) error {
	diff, err := in.includes("diff", "diff", "fields")
	if err != nil {
		return err
	}
	fields, _ := in.includes("fields", "diff", "fields")
	fields = fields || format == "table"
	doc, err := command.Answer(env, &in.files, func() (*explain.Rules, error) {
		var include []string
		if diff {
			include = append(include, "diff")
		}
		if fields {
			include = append(include, "fields")
		}
		return env.Client().Rules(cmd.Context(), env.Mesh, name, in.shadow, include...)
	}, func(o *offline.Offline, zone string) (*explain.Rules, []string, error) {
		return o.Rules(zone, env.Mesh, name, explain.RulesOptions{Shadow: in.shadow, Diff: diff, Fields: fields})
	})
	if err = command.Show(env, format, text.Rules)(doc, err); err != nil || !diff || command.IsDocument(format) {
		return err
	}
	return inspectDiff(cmd.Context(), env, in, name, len(doc.Diff), func(p *api.ProxyDiff) {
		text.RuleItems(env.Stdout, &p.Rules)
	})
}

// inspectPolicies implements --type=policies.
func inspectPolicies(env *command.Env, cmd *cobra.Command, in *inspection, name, format string) error {
	doc, err := command.Answer(env, &in.files, func() (*explain.Policies, error) {
		return env.Client().Policies(cmd.Context(), env.Mesh, name, in.backend)
	}, func(o *offline.Offline, zone string) (*explain.Policies, []string, error) {
		return o.Policies(zone, env.Mesh, name, in.backend)
	})
	return command.Show(env, format, func(w io.Writer, doc *explain.Policies) {
		text.Policies(w, doc, in.backend)
	})(doc, err)
}

// Commands returns the commands for proxies and their config.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{bootstrapCommand(env), inspectCommand(env), explainCommand(env), proxyCommand(env),
		drainCommand(env)}
}
