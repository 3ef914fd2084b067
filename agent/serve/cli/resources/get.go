package resources

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func getCommand(env *command.Env) *cobra.Command {
	var all bool
	var labels, namespace string
	view := &listView{}
	cmd := &cobra.Command{
		Use:        "get TYPE [NAME]",
		SuggestFor: []string{"list", "ls", "show", "describe"},
		Short:      "List or show resources",
		Long: `Lists the resources of a type in a mesh, or shows one of them. TYPE is a singular, plural, or short
name, in any case. TYPE/NAME is also accepted. -o yaml and -o json print documents that "nearside
apply" accepts. A list is a stream of documents in YAML, and {"total", "items"} in JSON.

--sort-by accepts name, age, revision, or a field such as .spec.targetRef.kind, in the syntax of -o
jsonpath. -w prints the list, and then, until Ctrl-C, each resource that is added, changed, or
deleted, or whose state changes. The table then has a column CHANGE, -o json prints one line for each
change, and -o name prints the name and, after a space, added, changed, or deleted.`,
		Example: `  nearside get dataplanes
  nearside get meshtimeouts -A -o wide
  nearside get mt slow -m shop -o yaml
  nearside get dataplanes -l kuma.io/service=web
  nearside get meshservices -n shop
  nearside get mt --sort-by age --no-headers
  nearside get dataplanes -w
  nearside get mesh/default -o json`,
		Args: command.Args(1, 2, "TYPE [NAME] or TYPE/NAME"),
	}
	command.ResourceFlags(env, cmd)
	cmd.Flags().BoolVarP(&all, "all-meshes", "A", false, "list all meshes")
	cmd.Flags().StringVarP(&labels, "selector", "l", "",
		"list those with these labels, or tags of a Dataplane: KEY=VALUE or KEY, separated by commas")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "list those of a Kubernetes namespace, or show NAME of it")
	cmd.Flags().BoolVarP(&view.watch, "watch", "w", false, "keep printing changes")
	cmd.Flags().BoolVar(&view.noHeaders, "no-headers", false, "omit the header line")
	cmd.Flags().StringVar(&view.sortBy, "sort-by", "",
		"sort by name, age, revision, or a field such as .spec.targetRef.kind")
	format := command.OutputFlag(cmd, "table", "wide", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		one := len(args) == 2 || strings.Contains(args[0], "/")
		if namespace != "" && !one {
			labels = strings.TrimPrefix(labels+","+resource.LabelNamespace+"="+namespace, ",")
		}
		chosen, err := parseSelector(labels)
		if err == nil {
			err = view.check(*format)
		}
		if err != nil {
			return err
		}
		view.format, view.chosen, view.labels = *format, chosen, labels
		if one {
			if all {
				return command.Usagef("-A lists the resources of all meshes; omit it to show one by NAME")
			}
			if chosen != nil {
				return command.Usagef("-l selects from a list; omit it to show one resource by NAME")
			}
			r, err := command.Resolve(cmd.Context(), env, args)
			if err != nil {
				return err
			}
			if namespace != "" && !strings.HasSuffix(r.Name, "."+namespace) {
				r.Name += "." + namespace // the name of a resource of a namespace
				env.Named = &r
			}
			view.kind, view.mesh, view.name = r.Kind, r.Mesh, r.Name
		} else {
			kind, err := command.KindOf(cmd.Context(), env, args[0])
			if err != nil {
				return err
			}
			view.kind = kind
			if !all && !kind.Global {
				if err := command.SelectMesh(cmd.Context(), env, nil); err != nil {
					return err
				}
				view.mesh = env.Mesh
			}
			env.Named = &command.Reference{Kind: kind, Mesh: view.mesh}
		}
		switch {
		case view.watch:
			return watch(cmd.Context(), env, view)
		case view.name == "":
			items, err := listed(cmd.Context(), env, view)
			if err != nil {
				return err
			}
			return printItems(cmd.Context(), env, view, items)
		}
		item, err := env.Client().Get(cmd.Context(), view.kind.Plural, view.mesh, view.name)
		if err != nil {
			return err
		}
		if ok, err := command.Printed(env, *format, item.Resource); ok {
			return err
		}
		return printItems(cmd.Context(), env, view, []api.Item{*item})
	}
	return cmd
}

// printItems writes resources in the format for lists.
func printItems(ctx context.Context, env *command.Env, v *listView, items []api.Item) error {
	docs := text.Each(items, func(it api.Item) json.RawMessage { return it.Resource })
	switch {
	case v.format == "yaml":
		return text.YAMLStream(env.Stdout, docs)
	case command.IsDocument(v.format):
		_, err := command.Printed(env, v.format, struct {
			Total int               `json:"total"`
			Items []json.RawMessage `json:"items"`
		}{len(docs), docs})
		return err
	case v.format == "name":
		for _, it := range items {
			d, err := readDocument(it)
			if err != nil {
				return err
			}
			text.Println(env.Stdout, v.nameOf(d))
		}
		return nil
	}
	if len(items) == 0 {
		with := ""
		if v.chosen != nil {
			with = " with " + v.labels
		}
		text.Printf(env.Stderr, "no %s%s%s\n", v.kind.Plural, text.InMesh(v.mesh), with)
		return nil
	}
	headers, rows, err := tableOf(ctx, env, v, items)
	if err != nil {
		return err
	}
	if v.noHeaders {
		headers = nil
	}
	t := text.NewTable(env.Stdout, headers...)
	for _, r := range rows {
		t.Row(r...)
	}
	t.Flush()
	return nil
}

// tableOf returns the headers and rows of a table of resources.
func tableOf(ctx context.Context, env *command.Env, v *listView,
	items []api.Item) (headers []string, rows [][]string, err error) {
	own, wide := columnsOf(v.kind), v.format == "wide"
	states := map[string]string{}
	switch {
	case v.kind.Kind == "Dataplane":
		proxies, err := env.Client().Proxies(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, p := range proxies.Items {
			states[p.Mesh+"/"+p.Name] = p.State
			if p.Endpoints != nil {
				states[p.Mesh+"/"+p.Name] += "," + p.Endpoints.State
			}
		}
	case v.kind.Policy && wide:
		own, err = policyColumns(ctx, env, v.kind, items, own)
	case isService(v.kind) && wide:
		own, err = serviceColumns(ctx, env, v.kind, items, own)
	}
	if err != nil {
		return nil, nil, err
	}
	return rowsOf(v.kind, items, own, states, wide)
}

// onlyOne returns mesh and name if the list has exactly one item, so that requests can ask for only
// that one. Otherwise they are empty.
func onlyOne(items []api.Item) (mesh, name string, err error) {
	if len(items) != 1 {
		return "", "", nil
	}
	d, err := readDocument(items[0])
	return d.Mesh, d.Name, err
}

// policyColumns adds a column with the state of policies on proxies.
func policyColumns(ctx context.Context, env *command.Env, kind api.Kind, items []api.Item,
	own []column) ([]column, error) {
	mesh, name, err := onlyOne(items)
	if err != nil {
		return nil, err
	}
	list, err := env.Client().Applied(ctx, kind.Plural, mesh, name)
	if err != nil {
		return nil, err
	}
	states := map[string]api.Applied{}
	for _, s := range list {
		states[s.Mesh+"/"+s.Name] = s
	}
	return append(own, column{"STATE", func(d *document) string { return text.AppliedState(states[d.Mesh+"/"+d.Name]) }}),
		nil
}

// rowsOf returns the headers and cells of a table.
func rowsOf(kind api.Kind, items []api.Item, own []column, states map[string]string,
	wide bool) (headers []string, rows [][]string, err error) {
	if !kind.Global {
		headers = append(headers, "MESH")
	}
	headers = append(headers, "NAME")
	for _, c := range own {
		headers = append(headers, c.header)
	}
	if kind.Kind == "Dataplane" {
		headers = append(headers, "STATE")
	}
	headers = append(headers, "SOURCE", "AGE")
	commits := slices.ContainsFunc(items, func(it api.Item) bool { return it.Meta.Commit != "" })
	if wide {
		headers = append(headers, "REVISION", "AUTHOR")
		if commits {
			headers = append(headers, "COMMIT")
		}
		headers = append(headers, "LABELS")
	}
	for _, it := range items {
		d, err := readDocument(it)
		if err != nil {
			return nil, nil, err
		}
		var cells []string
		if !kind.Global {
			cells = append(cells, d.Mesh)
		}
		cells = append(cells, d.Name)
		for _, c := range own {
			cells = append(cells, c.cell(d))
		}
		if kind.Kind == "Dataplane" {
			cells = append(cells, states[d.Mesh+"/"+d.Name])
		}
		source := it.Meta.Source
		if !wide {
			source, _, _ = strings.Cut(source, ":")
		}
		cells = append(cells, source, text.Age(it.Meta.Modified))
		if wide {
			cells = append(cells, fmt.Sprint(it.Meta.Revision), text.Author(it.Meta.Author, it.Meta.SignedBy))
			if commits {
				cells = append(cells, it.Meta.Commit)
			}
			cells = append(cells, text.Pairs(d.Labels))
		}
		rows = append(rows, cells)
	}
	return headers, rows, nil
}

// document has the fields of resources that tables show.
type document struct {
	Type, Mesh, Name string
	Labels           map[string]string
	MTLS             struct{ EnabledBackend string }
	Networking       struct {
		Address string
		Gateway *struct{ Tags map[string]string }
		Inbound []struct {
			Port uint32
			Tags map[string]string
		}
	}
	Tags map[string]string
	Spec struct {
		TargetRef *struct{ Kind, Name string }
		Ports     []specPort
		Match     struct {
			Port     uint32
			Protocol string
		}
	}
}

type specPort struct{ Port uint32 }

func readDocument(it api.Item) (*document, error) {
	d := &document{}
	if err := json.Unmarshal(it.Resource, d); err != nil {
		return nil, fmt.Errorf("the agent sent a resource that this command cannot read: %w", err)
	}
	return d, nil
}

// column is a table column of a specific kind.
type column struct {
	header string
	cell   func(*document) string
}

func columnsOf(k api.Kind) []column {
	service := func(d *document) string { return d.Tags["kuma.io/service"] }
	address := func(d *document) string { return d.Networking.Address }
	ports := func(d *document) string {
		return strings.Join(text.Each(d.Spec.Ports, func(p specPort) string { return fmt.Sprint(p.Port) }), ",")
	}
	switch k.Kind {
	case "Mesh":
		return []column{{"MTLS", func(d *document) string { return d.MTLS.EnabledBackend }}}
	case "Dataplane":
		return []column{{"SERVICES", services}, {"ADDRESS", address}}
	case "ZoneEgress", "ZoneIngress":
		return []column{{"ADDRESS", address}}
	case "ExternalService":
		return []column{{"SERVICE", service}, {"ADDRESS", address}}
	case "MeshService", "MeshMultiZoneService":
		return []column{{"PORTS", ports}}
	case "MeshExternalService":
		return []column{{"PORT", func(d *document) string { return fmt.Sprint(d.Spec.Match.Port) }},
			{"PROTOCOL", func(d *document) string { return d.Spec.Match.Protocol }}}
	}
	if k.Policy && !k.Legacy {
		return []column{{"TARGET", target}, {"EFFECT", func(d *document) string { return d.Labels["kuma.io/effect"] }}}
	}
	return nil
}

// services returns the distinct service tags of a dataplane.
func services(d *document) string {
	var s []string
	for _, in := range d.Networking.Inbound {
		s = append(s, in.Tags["kuma.io/service"])
	}
	if g := d.Networking.Gateway; g != nil {
		s = append(s, g.Tags["kuma.io/service"])
	}
	slices.Sort(s)
	return strings.Join(slices.Compact(s), ",")
}

// target returns the top-level targetRef of a policy.
func target(d *document) string {
	switch r := d.Spec.TargetRef; {
	case r == nil:
		return "Mesh"
	case r.Name != "":
		return r.Kind + "/" + r.Name
	default:
		return r.Kind
	}
}
