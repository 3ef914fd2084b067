package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func (a *app) getCommand() *cobra.Command {
	var all bool
	var labels string
	view := &listView{}
	cmd := &cobra.Command{
		Use:        "get TYPE [NAME]",
		SuggestFor: []string{"list", "ls", "show", "describe"},
		Short:      "List or show resources",
		Long: `Lists the resources of a type in a mesh, or shows one. TYPE is a singular, plural or short name in any case;
TYPE/NAME is possible too. -o yaml and -o json print what apply takes: one document of a resource; for a list, YAML
has a stream of documents and JSON {"total", "items"}.

--sort-by takes name, age, revision or a field (.spec.targetRef.kind), as -o jsonpath does. -w prints what is there and then, until Ctrl-C, each
resource that is added, changed or deleted, or whose state changes: a table with a column CHANGE, or with -o json one line for each.`,
		Example: `  nearside get dataplanes
  nearside get meshtimeouts -A -o wide
  nearside get mt slow -m shop -o yaml
  nearside get dataplanes -l kuma.io/service=web
  nearside get mt --sort-by age --no-headers
  nearside get dataplanes -w
  nearside get mesh/default -o json`,
		Args:              args(1, 2, "TYPE [NAME] or TYPE/NAME"),
		ValidArgsFunction: a.completeTypeAndName,
	}
	a.meshFlag(cmd)
	cmd.Flags().BoolVarP(&all, "all-meshes", "A", false, "list those of all meshes")
	cmd.Flags().StringVarP(&labels, "selector", "l", "",
		"list those with these labels, or tags of a dataplane: KEY=VALUE or KEY, with commas between them")
	cmd.Flags().BoolVarP(&view.watch, "watch", "w", false, "go on with what changes")
	cmd.Flags().BoolVar(&view.noHeaders, "no-headers", false, "leave the line of headers out")
	cmd.Flags().StringVar(&view.sortBy, "sort-by", "",
		"name, age, revision or a field of the document: .spec.targetRef.kind")
	format := outputFlag(cmd, "table", "wide", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		chosen, err := parseSelector(labels)
		if err == nil {
			err = view.check(*format)
		}
		if err != nil {
			return err
		}
		view.format, view.chosen, view.labels = *format, chosen, labels
		if len(args) == 2 || strings.Contains(args[0], "/") {
			if all {
				return usagef("-A lists the resources of all meshes; leave it out to show one by NAME")
			}
			if chosen != nil {
				return usagef("-l chooses among the resources of a list; leave it out to show one by NAME")
			}
			r, err := a.reference(cmd.Context(), args)
			if err != nil {
				return err
			}
			view.kind, view.mesh, view.name = r.kind, r.mesh, r.name
			if view.watch {
				return a.watch(cmd.Context(), view)
			}
			item, err := a.client().Get(cmd.Context(), r.kind.Plural, r.mesh, r.name)
			if err != nil {
				return err
			}
			if ok, err := a.printed(*format, item.Resource); ok {
				return err
			}
			return a.printItems(cmd.Context(), view, []client.Item{*item})
		}
		kind, err := a.kind(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		view.kind, view.mesh = kind, a.mesh
		if all || kind.Global {
			view.mesh = ""
		}
		a.named = &reference{kind: kind, mesh: view.mesh}
		if view.watch {
			return a.watch(cmd.Context(), view)
		}
		items, err := a.listed(cmd.Context(), view)
		if err != nil {
			return err
		}
		return a.printItems(cmd.Context(), view, items)
	}
	return cmd
}

// printItems writes resources in a format for many.
func (a *app) printItems(ctx context.Context, v *listView, items []client.Item) error {
	docs := each(items, func(it client.Item) json.RawMessage { return it.Resource })
	switch {
	case v.format == "yaml":
		return printStream(a.stdout, docs)
	case isDocument(v.format):
		_, err := a.printed(v.format, struct {
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
			printLine(a.stdout, typeAndName(d.Type, d.Name))
		}
		return nil
	}
	if len(items) == 0 {
		with := ""
		if v.chosen != nil {
			with = " with " + v.labels
		}
		printf(a.stderr, "no %s%s%s\n", v.kind.Plural, inMesh(v.mesh), with)
		return nil
	}
	headers, rows, err := a.tableOf(ctx, v, items)
	if err != nil {
		return err
	}
	t := &table{tabwriter.NewWriter(a.stdout, 0, 8, 3, ' ', 0)}
	if !v.noHeaders {
		t.row(headers...)
	}
	for _, r := range rows {
		t.row(r...)
	}
	return t.Flush()
}

// tableOf makes the table of resources: headers, and a row for each.
func (a *app) tableOf(ctx context.Context, v *listView,
	items []client.Item) (headers []string, rows [][]string, err error) {
	own, wide := columnsOf(v.kind), v.format == "wide"
	states := map[string]string{}
	switch {
	case v.kind.Kind == "Dataplane":
		proxies, err := a.client().Proxies(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, p := range proxies.Items {
			states[p.Mesh+"/"+p.Name] = p.State
		}
	case v.kind.Policy && wide:
		own, err = a.policyColumns(ctx, v.kind, items, own)
	case isService(v.kind) && wide:
		own, err = a.serviceColumns(ctx, v.kind, items, own)
	}
	if err != nil {
		return nil, nil, err
	}
	return rowsOf(v.kind, items, own, states, wide)
}

// onlyOne names the one resource of a list, so that no more than it is asked about; "" for a list
// of others.
func onlyOne(items []client.Item) (mesh, name string, err error) {
	if len(items) != 1 {
		return "", "", nil
	}
	d, err := readDocument(items[0])
	return d.Mesh, d.Name, err
}

// policyColumns adds the state of policies on the proxies.
func (a *app) policyColumns(ctx context.Context, kind client.Kind, items []client.Item,
	own []column) ([]column, error) {
	mesh, name, err := onlyOne(items)
	if err != nil {
		return nil, err
	}
	list, err := a.client().Applied(ctx, kind.Plural, mesh, name)
	if err != nil {
		return nil, err
	}
	states := map[string]client.Applied{}
	for _, s := range list {
		states[s.Mesh+"/"+s.Name] = s
	}
	return append(own, column{"STATE", func(d *document) string { return stateOf(states[d.Mesh+"/"+d.Name]) }}), nil
}

// stateOf returns the state of a policy on the proxies in a few words.
func stateOf(s client.Applied) string {
	switch s.State {
	case client.StateRejected:
		r := s.Rejected[0]
		who := r.Mesh + "/" + r.Name
		if s.RejectedTotal > 1 {
			who += fmt.Sprintf(" and %d more", s.RejectedTotal-1)
		}
		verb := "rejected by"
		if r.By == client.HeldByCheck {
			verb = "withheld from"
		}
		return fmt.Sprintf("%s %s: %s: %s", verb, who, r.Resource, oneLine(r.Reason)+client.RetrySaid(r.Retry))
	case client.StatePending:
		return "pending on " + counted(s.LateTotal, "proxy")
	case client.StateUnselected:
		return "selects nothing"
	case client.StateApplied:
		if s.Proxies == 0 {
			return "no proxy here"
		}
		return "applied on " + counted(s.Proxies, "proxy")
	}
	return s.State
}

// rowsOf makes the cells of a table.
func rowsOf(kind client.Kind, items []client.Item, own []column, states map[string]string,
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
	if wide {
		headers = append(headers, "REVISION", "AUTHOR", "LABELS")
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
		cells = append(cells, source, age(it.Meta.Modified))
		if wide {
			cells = append(cells, fmt.Sprint(it.Meta.Revision), it.Meta.Author, pairs(d.Labels))
		}
		rows = append(rows, cells)
	}
	return headers, rows, nil
}

// document is what tables show of a resource.
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

func readDocument(it client.Item) (*document, error) {
	d := &document{}
	if err := json.Unmarshal(it.Resource, d); err != nil {
		return nil, fmt.Errorf("the agent has sent a resource that this command cannot read: %w", err)
	}
	return d, nil
}

// column is one that a kind has beside those of all kinds.
type column struct {
	header string
	cell   func(*document) string
}

func columnsOf(k client.Kind) []column {
	service := func(d *document) string { return d.Tags["kuma.io/service"] }
	address := func(d *document) string { return d.Networking.Address }
	ports := func(d *document) string {
		return strings.Join(each(d.Spec.Ports, func(p specPort) string { return fmt.Sprint(p.Port) }), ",")
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

// services lists the service tags of a dataplane, without repetition.
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

// target is the top-level targetRef of a policy.
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

// pairs writes a map as k=v,k=v in a stable order.
func pairs(m map[string]string) string {
	return strings.Join(each(slices.Sorted(maps.Keys(m)), func(k string) string { return k + "=" + m[k] }), ",")
}
