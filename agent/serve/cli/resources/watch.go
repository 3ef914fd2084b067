package resources

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/jsonpath"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// listView selects the resources that get shows, and the output format.
type listView struct {
	kind             api.Kind
	mesh, name       string // empty name: a list
	chosen           selector
	labels           string // the text of chosen
	format, sortBy   string
	watch, noHeaders bool
}

// nameOf returns the name of an item in -o name. A list of all meshes has names with their mesh.
func (v *listView) nameOf(d *document) string {
	if v.mesh == "" && d.Mesh != "" {
		return text.TypeAndName(d.Type, d.Mesh+"/"+d.Name)
	}
	return text.TypeAndName(d.Type, d.Name)
}

// check validates the flags.
func (v *listView) check(format string) error {
	if v.watch && (format == "yaml" || strings.HasPrefix(format, command.JsonPath)) {
		return command.Usagef("-o %s cannot be used with -w; use one of table, wide, json, name", format)
	}
	if strings.HasPrefix(v.sortBy, ".") || strings.HasPrefix(v.sortBy, "{") {
		if _, err := jsonpath.Parse(v.sortBy); err != nil {
			return command.Usagef("--sort-by: %v", err)
		}
	} else if !slices.Contains([]string{"", "name", "age", "revision"}, v.sortBy) {
		return command.Usagef("--sort-by %q is invalid; give name, age, revision, or a field such as .spec.targetRef.kind",
			v.sortBy)
	}
	return nil
}

// listed requests the resources, and selects and sorts them.
func listed(ctx context.Context, env *command.Env, v *listView) ([]api.Item, error) {
	if v.name != "" {
		it, err := env.Client().Get(ctx, v.kind.Plural, v.mesh, v.name)
		var p *api.Error
		switch {
		case errors.As(err, &p) && p.Type == api.ProblemNotFound:
			return nil, nil
		case err != nil:
			return nil, err
		}
		return []api.Item{*it}, nil
	}
	items, err := env.Client().List(ctx, v.kind.Plural, v.mesh)
	if err == nil {
		items, err = v.chosen.of(items)
	}
	if err != nil {
		return nil, err
	}
	return v.sorted(items)
}

// sorted sorts by --sort-by: numbers by value, text bytewise, items without a value first. The sort
// is stable.
func (v *listView) sorted(items []api.Item) ([]api.Item, error) {
	switch v.sortBy {
	case "", "name":
		return items, nil
	case "age":
		slices.SortStableFunc(items, func(x, y api.Item) int { return y.Meta.Modified.Compare(x.Meta.Modified) })
		return items, nil
	case "revision":
		slices.SortStableFunc(items, func(x, y api.Item) int { return cmp.Compare(x.Meta.Revision, y.Meta.Revision) })
		return items, nil
	}
	field, err := jsonpath.Parse(v.sortBy)
	if err != nil {
		return nil, err
	}
	type keyed struct {
		item   api.Item
		text   string
		number float64
		isNum  bool
	}
	list, found := make([]keyed, len(items)), len(items) == 0
	for i, it := range items {
		var b strings.Builder
		if err := field.Print(&b, it.Resource); err != nil {
			return nil, err
		}
		k := keyed{item: it, text: strings.TrimSuffix(b.String(), "\n")}
		found = found || k.text != ""
		n, err := strconv.ParseFloat(k.text, 64)
		k.number, k.isNum = n, err == nil
		list[i] = k
	}
	if !found {
		return nil, command.Usagef("--sort-by %s: no document of the list has that field; "+
			"nearside schema KIND lists the fields of a kind", v.sortBy)
	}
	slices.SortStableFunc(list, func(x, y keyed) int {
		if x.isNum && y.isNum {
			return cmp.Compare(x.number, y.number)
		}
		return cmp.Compare(x.text, y.text)
	})
	return text.Each(list, func(k keyed) api.Item { return k.item }), nil
}

// watchEvery is the polling interval of get -w.
const watchEvery = time.Second

// watched is a resource as get -w last printed it.
type watched struct {
	item  api.Item
	shown string // cells without the age
	cells []string
}

// Changes that get -w prints.
const (
	changeAdded   = "added"
	changeChanged = "changed"
	changeDeleted = "deleted"
)

// watch prints the resources, and then each change until a signal arrives. It waits for an agent
// that is temporarily unreachable.
func watch(ctx context.Context, env *command.Env, v *listView) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var before map[string]watched
	lost := false
	for {
		now, order, headers, err := look(ctx, env, v)
		var unreachable *client.UnreachableError
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && before != nil && errors.As(err, &unreachable):
			if !lost {
				text.Printf(env.Stderr, "%v; trying again\n", err)
			}
			lost = true
		case err != nil:
			return err
		default:
			lost = false
			if err := printChanges(env, v, before, now, order, headers); err != nil {
				return err
			}
			before = now
		}
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// look requests the resources and returns their rows by mesh and name, the sorted keys, and the
// headers.
func look(ctx context.Context, env *command.Env,
	v *listView) (now map[string]watched, order, headers []string, err error) {
	items, err := listed(ctx, env, v)
	if err != nil {
		return nil, nil, nil, err
	}
	headers, rows, err := tableOf(ctx, env, v, items)
	if err != nil {
		return nil, nil, nil, err
	}
	now = map[string]watched{}
	age := slices.Index(headers, "AGE")
	for i, it := range items {
		d, err := readDocument(it)
		if err != nil {
			return nil, nil, nil, err
		}
		key := d.Mesh + "/" + d.Name
		order = append(order, key)
		now[key] = watched{it, strings.Join(slices.Delete(slices.Clone(rows[i]), age, age+1), "\x00") + it.Meta.ETag, rows[i]}
	}
	return now, order, headers, nil
}

// printChanges prints the rows that differ from before. The first call prints all rows, without a
// change.
func printChanges(env *command.Env, v *listView, before, now map[string]watched, order, headers []string) error {
	type row struct {
		change string
		of     watched
	}
	var rows []row
	for _, key := range order {
		switch old, was := before[key]; {
		case before == nil:
			rows = append(rows, row{"", now[key]})
		case !was:
			rows = append(rows, row{changeAdded, now[key]})
		case old.shown != now[key].shown:
			rows = append(rows, row{changeChanged, now[key]})
		}
	}
	var gone []string
	for key := range before {
		if _, is := now[key]; !is {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	for _, key := range gone {
		rows = append(rows, row{changeDeleted, before[key]})
	}
	// Rows are printed one by one, so columns need a minimum width.
	t := text.NewTableOf(env.Stdout, 12)
	if before == nil && !v.noHeaders && !command.IsDocument(v.format) && v.format != "name" {
		t.Row(append(slices.Clone(headers), "CHANGE")...)
	}
	for _, r := range rows {
		switch v.format {
		case "json":
			enc := json.NewEncoder(text.Verbatim(env.Stdout))
			enc.SetEscapeHTML(false)
			if err := enc.Encode(struct {
				Change   string          `json:"change"` // empty for the initial list
				Resource json.RawMessage `json:"resource"`
			}{r.change, r.of.item.Resource}); err != nil {
				return err
			}
		case "name":
			d, err := readDocument(r.of.item)
			if err != nil {
				return err
			}
			text.Println(env.Stdout, strings.TrimSuffix(v.nameOf(d)+" "+r.change, " "))
		default:
			t.Row(append(slices.Clone(r.of.cells), r.change)...)
		}
	}
	t.Flush()
	return nil
}

// selector matches resources by labels and tags. Each term is KEY=VALUE, or KEY for any value; all
// terms must match.
type selector []string

// parseSelector parses -l.
func parseSelector(content string) (selector, error) {
	if content == "" {
		return nil, nil
	}
	out := selector(strings.Split(content, ","))
	for _, term := range out {
		if key, _, _ := strings.Cut(term, "="); key == "" || strings.ContainsAny(key, "! ()") {
			return nil, command.Usagef("-l %q is invalid; give KEY=VALUE or KEY, separated by commas", content)
		}
	}
	return out, nil
}

// of returns the matching items.
func (s selector) of(items []api.Item) (out []api.Item, err error) {
	if len(s) == 0 {
		return items, nil
	}
	for _, it := range items {
		d, err := readDocument(it)
		if err != nil {
			return nil, err
		}
		if s.chooses(d) {
			out = append(out, it)
		}
	}
	return out, nil
}

func (s selector) chooses(d *document) bool {
	sets := []map[string]string{d.Labels, d.Tags}
	if g := d.Networking.Gateway; g != nil {
		sets = append(sets, g.Tags)
	}
	for _, in := range d.Networking.Inbound {
		sets = append(sets, in.Tags)
	}
	for _, term := range s {
		key, value, exact := strings.Cut(term, "=")
		matched := false
		for _, set := range sets {
			got, ok := set[key]
			matched = matched || ok && (!exact || got == value)
		}
		if !matched {
			return false
		}
	}
	return true
}
