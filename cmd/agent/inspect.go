package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func (a *app) inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "inspect",
		Short:   "Show the config of proxies and whether they acknowledged it",
		Example: "  nearside inspect dataplanes\n  nearside inspect dataplane web --type=config -o json",
		Args:    a.inspectGroup,
		RunE:    help,
	}
	cmd.AddCommand(a.inspectDataplanesCommand(), a.inspectDataplaneCommand(), a.inspectServicesCommand(),
		a.inspectZoneCommand(offline.ProxyEgress, "zoneegresses"),
		a.inspectZoneCommand(offline.ProxyIngress, "zoneingresses"))
	return cmd
}

// inspectGroup is [group] for what may be the name of a dataplane, or a kind.
func (a *app) inspectGroup(cmd *cobra.Command, args []string) error {
	err := group(cmd, args)
	if err == nil {
		return nil
	}
	quick := a.quick(completionTime)
	if names, nerr := quick.Names(cmd.Context(), "dataplanes", "default", args[0]); nerr == nil &&
		slices.Contains(names, args[0]) {
		return usagef("%q is the name of a dataplane; did you mean %s dataplane %s?", args[0], cmd.CommandPath(), args[0])
	}
	kinds, kerr := quick.Kinds(cmd.Context())
	if kerr != nil {
		return err
	}
	switch k, kerr := findKind(kinds, args[0]); {
	case kerr != nil:
		return err
	case k.Policy:
		return usagef("%s shows proxies; what a %s does on one says nearside explain policy %s/NAME --dataplane NAME",
			cmd.CommandPath(), k.Kind, args[0])
	default:
		return usagef("%s shows proxies; nearside get %s shows this type", cmd.CommandPath(), args[0])
	}
}

func (a *app) inspectDataplanesCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "dataplanes",
		Short: "List the proxies and their sync status",
		Long: `Lists every Dataplane of a mesh and every client that asks this agent for config. STATE is synced, pending (an
answer is outstanding), rejected (it rejected something and keeps its previous config), unknown (it asks for a Dataplane that
does not exist), disconnected (no client on this node) or elsewhere (it belongs to another node of the pool).

-o wide adds how many services each reaches of those that it would reach without lists and permissions (CLUSTERS), and
about how many bytes of config that saves (SAVED).`,
		Example: "  nearside inspect dataplanes\n  nearside inspect dataplanes -A -o wide",
		Args:    args(0, 0, "no arguments"),
	}
	a.meshFlag(cmd)
	cmd.Flags().BoolVarP(&all, "all-meshes", "A", false, "list those of all meshes")
	format := outputFlag(cmd, "table", "wide", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var include []string
		if *format == "wide" {
			include = []string{"reach"}
		}
		ps, err := a.client().Proxies(cmd.Context(), include...)
		if err != nil {
			return err
		}
		ps.Items = slices.DeleteFunc(ps.Items, func(p client.Proxy) bool { return p.Mesh == "" || !all && p.Mesh != a.mesh })
		ps.Total = len(ps.Items)
		if ok, err := a.printed(*format, ps); ok {
			return err
		}
		if *format == "name" {
			for _, p := range ps.Items {
				printLine(a.stdout, "dataplane/"+p.Name)
			}
			return nil
		}
		return a.proxyTable(ps.Items, *format == "wide")
	}
	return cmd
}

func (a *app) proxyTable(ps []client.Proxy, wide bool) error {
	headers := []string{"MESH", "NAME", "STATE", "CLIENT", "CONNECTED"}
	if wide {
		headers = append(headers, "NODE", "PEER", "RESOURCES", "CLUSTERS", "SAVED")
	}
	t := newTable(a.stdout, append(headers, "REASON")...)
	for _, p := range ps {
		if len(p.Clients) == 0 {
			cells := append([]string{p.Mesh, p.Name, p.State}, make([]string, len(headers)-3)...)
			if wide {
				copy(cells[len(cells)-2:], savingCells(&p))
			}
			t.row(append(cells, p.Reason)...)
		}
		for _, c := range p.Clients {
			cells := []string{p.Mesh, p.Name, p.State, strings.TrimSpace(c.UserAgent + " " + c.Version), age(c.ConnectedAt)}
			if wide {
				n := 0
				for _, t := range c.Types {
					n += t.Resources
				}
				cells = append(append(cells, c.NodeID, c.Peer.String(), fmt.Sprint(n)), savingCells(&p)...)
			}
			t.row(append(cells, p.Reason)...)
		}
	}
	return t.Flush()
}

// Types of inspect dataplane.
const (
	typeConfig   = "config"
	typeRules    = "rules"
	typePolicies = "policies"
	typeStatus   = "status"
)

// inspection is the flags of inspect dataplane.
type inspection struct {
	files        fileFlags
	typ          string
	include      []string
	backend      string
	dump, shadow bool
	computed     bool
}

func (a *app) inspectDataplaneCommand() *cobra.Command {
	var in inspection
	cmd := &cobra.Command{
		Use:   "dataplane NAME",
		Short: "Show the config of a proxy with its reasons, or its sync status",
		Long: `Shows the xDS config of a proxy (--type=config), what its policies say together (--type=rules), which policies
select it, what of them is in force and which services it reaches (--type=policies), or which versions it was sent, has acknowledged and rejected,
and what it may reach outside the mesh (--type=status).

With -f, the answer is computed from these resources alone, without any agent and by the same code; the zone is then
NEARSIDE_NODE_ZONE. --shadow includes the shadow policies, and --include=diff adds the RFC 6902 patch that leads from
what is in force to what is shown; the table shows it in words, with the policy that causes each change. --computed shows
the config as it was computed, with what the check withholds from the proxy. --include=fields
adds to each rule which policy each of its fields comes from, which the table always has. -o json has the documents of
the API.`,
		Example: `  nearside inspect dataplane web
  nearside inspect dataplane web --type=rules
  nearside inspect dataplane web --type=status
  nearside inspect dataplane web --shadow --include=diff -o json
  nearside inspect dataplane web -m shop -f resources/ -o json`,
		Args:              args(1, 1, "the NAME of a dataplane"),
		ValidArgsFunction: a.completeNamesOf("dataplanes"),
	}
	a.meshFlag(cmd)
	in.files.add(cmd, "compute offline from these resources")
	fl := cmd.Flags()
	choiceFlag(cmd, &choice{&in.typ, "--type", []string{typeConfig, typeRules, typePolicies, typeStatus}}, "type", "",
		"what to show: ")
	fl.BoolVar(&in.dump, "config-dump", false, "the same as --type=config")
	fl.BoolVar(&in.shadow, "shadow", false, "include shadow policies")
	fl.BoolVar(&in.computed, "computed", false, "show the computed config, with what the check withholds")
	fl.StringSliceVar(&in.include, "include", nil, "what to add: diff; of rules also fields")
	fl.StringVar(&in.backend, "backend", "",
		"service of which --type=policies says whether it is reached: NAME, KIND/NAME or KIND/NAME:PORT")
	_ = cmd.RegisterFlagCompletionFunc("include",
		cobra.FixedCompletions([]string{"diff", "fields"}, cobra.ShellCompDirectiveNoFileComp))
	format := outputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(in.files.paths) == 0 {
			a.aboutDataplane(args[0])
		}
		if in.dump && fl.Changed("type") && in.typ != typeConfig {
			return usagef("--config-dump is the same as --type=config; leave one of the two out")
		}
		if in.computed && (in.typ != typeConfig || in.shadow) {
			return usagef("--computed belongs to --type=config without --shadow, which is always computed")
		}
		if in.backend != "" && in.typ != typePolicies {
			return usagef("--backend belongs to --type=policies")
		}
		switch in.typ {
		case typeRules:
			return a.inspectRules(cmd, &in, args[0], *format)
		case typePolicies:
			if in.shadow || len(in.include) > 0 {
				return usagef("--shadow and --include belong to --type=config and --type=rules")
			}
			return a.inspectPolicies(cmd, &in, args[0], *format)
		case typeStatus:
			if in.shadow || len(in.include) > 0 || len(in.files.paths) > 0 {
				return usagef("--shadow, --include and -f do not go with --type=status, which is about what the agent has sent")
			}
			return show(a, *format, a.proxyText, nil)(a.client().Proxy(cmd.Context(), a.mesh, args[0]))
		}
		return a.inspectConfig(cmd, &in, args[0], *format)
	}
	return cmd
}

// includes checks --include and says whether it has one of the items.
func (in *inspection) includes(item string, possible ...string) (bool, error) {
	for _, i := range in.include {
		if !slices.Contains(possible, i) {
			return false, usagef("--include %q is not possible; with --type=%s only %s can be included",
				i, in.typ, strings.Join(possible, " and "))
		}
	}
	return slices.Contains(in.include, item), nil
}

func (a *app) inspectConfig(cmd *cobra.Command, in *inspection, name, format string) error {
	diff, err := in.includes("diff", "diff")
	if err != nil {
		return err
	}
	return show(a, format, func(c *client.Config) error {
		if err := a.configText(c); err != nil || !diff {
			return err
		}
		return a.inspectDiff(cmd.Context(), in, name, len(c.Diff), func(p *client.ProxyDiff) {
			configItems(a.stdout, &p.Config)
		})
	}, nil)(answer(a, &in.files, func() (*client.Config, error) {
		return a.client().Config(cmd.Context(), a.mesh, name,
			client.ConfigOptions{Shadow: in.shadow, Diff: diff, Computed: in.computed})
	}, func(o *offline.Offline, zone string) (*client.Config, []string, error) {
		return o.Config(zone, a.mesh, name, offline.ConfigOptions{Shadow: in.shadow, Diff: diff, Computed: in.computed})
	}))
}

// configText writes a config.
func (a *app) configText(c *client.Config) error {
	t := newTable(a.stdout, "TYPE", "NAME", "BYTES")
	for _, typ := range slices.Sorted(maps.Keys(c.XDS)) {
		for _, n := range slices.Sorted(maps.Keys(c.XDS[typ])) {
			t.row(shortType(typ), n, fmt.Sprint(len(c.XDS[typ][n])))
		}
	}
	return t.Flush()
}

// inspectDiff writes how what is shown of a proxy differs from what is in force, by a number of
// operations.
func (a *app) inspectDiff(ctx context.Context, in *inspection, name string, operations int,
	show func(*client.ProxyDiff)) error {
	printf(a.stdout, "\nDIFF: %s\n", counted(operations, "operation"))
	if operations == 0 {
		return nil
	}
	d, err := a.diff(ctx,
		&difference{against: in.files, shadow: true, mesh: a.mesh, dataplane: name, omit: []string{"patch"}})
	if err != nil {
		return err
	}
	for i := range d.Proxies {
		show(&d.Proxies[i])
	}
	return nil
}

// warn writes warnings to standard error.
func (a *app) warn(warnings []string) {
	for _, w := range warnings {
		printLine(a.stderr, "warning: "+w)
	}
}

// proxyText writes the sync status of a proxy.
func (a *app) proxyText(p *client.Proxy) error {
	printf(a.stdout, "%s/%s: %s", cmp.Or(p.Mesh, p.Type.Kind()), p.Name, p.State)
	if p.Reason != "" {
		printf(a.stdout, ": %s", p.Reason)
	}
	printLine(a.stdout)
	for _, x := range p.Problems {
		printf(a.stdout, "%s: %s\n", x.Severity, x.Reason)
	}
	for _, c := range p.Clients {
		printf(a.stdout, "\nnode %s: %s %s, %s, %s ago, %s\n", c.NodeID, c.UserAgent, c.Version, c.Peer, age(c.ConnectedAt),
			counted(c.Streams, "stream"))
		t := newTable(a.stdout, "TYPE", "RESOURCES", "SENT", "ACKED", "REJECTED")
		for _, x := range c.Types {
			rejected := ""
			if x.NACK != nil {
				rejected = x.NACK.Version + ": " + x.NACK.Reason
			}
			t.row(shortType(x.TypeURL), fmt.Sprint(x.Resources), x.SentVersion, x.AckedVersion, rejected)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, x := range c.Types {
			for _, h := range x.Held {
				printf(a.stdout, "withheld: %s: %s\n", h.Name, oneLine(h.Reason))
				printBlame(a.stdout, "  because of ", h.Policies)
			}
		}
	}
	if n := p.RefusedConnections; n != nil && *n > 0 {
		printf(a.stdout, "\nrefused: %d connections to destinations outside of the mesh since Envoy started; "+
			"see nearside passthrough suggest --dataplane %s\n", *n, p.Name)
	}
	if w, r := p.LogWritesFailed, p.LogReopensFailed; w != nil && r != nil && *w+*r > 0 {
		printf(a.stdout, "\nlost: %d writes to access logs and %d attempts to open them anew have failed since Envoy "+
			"started, each with the loss of some lines\n", *w, *r)
	}
	return a.inForce(p.InForce)
}

// inspectZoneCommand shows a zone proxy.
func (a *app) inspectZoneCommand(t offline.ProxyType, plural string) *cobra.Command {
	var files fileFlags
	var typ string
	kind := t.Kind()
	name := strings.ToLower(kind)
	cmd := &cobra.Command{
		Use:   name + " NAME",
		Short: "Show the config of a " + kind + ", or its sync status",
		Long: `Shows the xDS config of the proxy of a ` + kind +
			` (--type=config), which is made from all meshes, or which versions it
was sent, has acknowledged and rejected (--type=status). With -f, the config is computed from these resources alone; the
zone is then NEARSIDE_NODE_ZONE.`,
		Example: "  nearside inspect " + name + " " + string(t) + "-1\n  nearside inspect " + name + " " + string(t) +
			"-1 --type=status",
		Args:              args(1, 1, "the NAME of a "+kind),
		ValidArgsFunction: a.completeNamesOf(plural),
	}
	files.add(cmd, "compute offline from these resources")
	choiceFlag(cmd, &choice{&typ, "--type", []string{typeConfig, typeStatus}}, "type", "", "what to show: ")
	format := outputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if typ == typeStatus {
			if len(files.paths) > 0 {
				return usagef("-f does not go with --type=status, which is about what the agent has sent")
			}
			return show(a, *format, a.proxyText, nil)(a.client().ZoneProxy(cmd.Context(), plural, args[0]))
		}
		return show(a, *format, a.configText, nil)(answer(a, &files, func() (*client.Config, error) {
			return a.client().ZoneConfig(cmd.Context(), plural, args[0])
		}, func(o *offline.Offline, zone string) (*client.Config, []string, error) {
			return o.ZoneConfig(zone, offline.ProxyRef{Type: t, Name: args[0]})
		}))
	}
	return cmd
}
