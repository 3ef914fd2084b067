package resources

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// selector chooses resources by their labels, and by their tags too: KEY=VALUE, or KEY for any
// value; all of them hold.
type selector []string

// parseSelector reads -l.
func parseSelector(content string) (selector, error) {
	if content == "" {
		return nil, nil
	}
	out := selector(strings.Split(content, ","))
	for _, term := range out {
		if key, _, _ := strings.Cut(term, "="); key == "" || strings.ContainsAny(key, "! ()") {
			return nil, command.Usagef("-l %q is not possible; give KEY=VALUE or KEY, several with commas between them", content)
		}
	}
	return out, nil
}

// of returns the items that it chooses.
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
		held := false
		for _, set := range sets {
			got, ok := set[key]
			held = held || ok && (!exact || got == value)
		}
		if !held {
			return false
		}
	}
	return true
}
