// Package served compares configs by their meaning with those that another server has given to the
// same proxies: a Kuma control plane, or an earlier version of nearside.
//
// It does not compare what a server may choose: names of routes and of statistics, routes inline or
// by RDS, virtual addresses, names of clusters that lead to the same endpoints, the content of
// secrets, and the order of lists whose order has no meaning. Equal differences of several
// resources and proxies are one group. The package is pure.
package served

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
)

// Kinds of differences, from what was served to what is computed.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Report is the comparison of several proxies.
type Report struct {
	Proxies []Proxy `json:"proxies"`
	Groups  []Group `json:"groups"` // those with the most places first
}

// Differs reports whether a proxy differs.
func (r *Report) Differs() bool { return len(r.Groups) > 0 }

// Proxy is the comparison of one proxy.
type Proxy struct {
	Mesh        string `json:"mesh"`
	Name        string `json:"name"`
	Differences int    `json:"differences"`
}

// Group is a difference with the places where it occurs.
type Group struct {
	Action string `json:"action"`
	// Field is the type of the resource and the path of the field, without indexes.
	Field    string          `json:"field"`
	Served   json.RawMessage `json:"served,omitempty"`
	Computed json.RawMessage `json:"computed,omitempty"`
	Cause    string          `json:"cause,omitempty"` // of a known difference
	Places   int             `json:"places"`
	Proxies  int             `json:"proxies"`
	// Example is MESH/PROXY and the name of a resource.
	Example [2]string `json:"example"`
}

// Config is a config by type URL and name.
type Config map[string]map[string]any

// Parse reads a config: the output of "kumactl inspect dataplane NAME --type=config" or of
// "nearside inspect dataplane NAME --type=config -o json".
func Parse(data []byte) (Config, error) {
	v, err := jsonpatch.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	top, _ := v.(map[string]any)
	if xds, is := top["xds"].(map[string]any); is {
		top = xds
	}
	out := Config{}
	for typeURL, list := range top {
		resources, is := list.(map[string]any)
		if !is || !strings.HasPrefix(typeURL, "type.googleapis.com/") {
			return nil, errors.New("it is not the output of inspect dataplane --type=config, which has resources by type " +
				"URL and name below xds")
		}
		out[typeURL] = resources
	}
	if len(out) == 0 {
		return nil, errors.New("it contains no resources; give the output of inspect dataplane --type=config")
	}
	return out, nil
}

// Comparison collects the differences of proxies.
type Comparison struct {
	report Report
	groups map[string]*group
}

type group struct {
	Group
	proxies map[string]bool
}

// Add compares a proxy. It changes the configs.
func (c *Comparison) Add(mesh, name string, was, is Config) {
	list := differences(was, is)
	c.report.Proxies = append(c.report.Proxies, Proxy{Mesh: mesh, Name: name, Differences: len(list)})
	if c.groups == nil {
		c.groups = map[string]*group{}
	}
	id := mesh + "/" + name
	for _, d := range list {
		key := strings.Join([]string{d.action, d.field, string(d.was), string(d.is)}, "\x00")
		g := c.groups[key]
		if g == nil {
			g = &group{Group: Group{Action: d.action, Field: d.field, Served: d.was, Computed: d.is,
				Cause: causeOf(&d), Example: [2]string{id, d.resource}}, proxies: map[string]bool{}}
			c.groups[key] = g
		}
		g.Places++
		g.proxies[id] = true
	}
}

// Report returns the result.
func (c *Comparison) Report() *Report {
	out := c.report
	out.Groups = []Group{}
	for _, key := range slices.Sorted(maps.Keys(c.groups)) {
		g := c.groups[key]
		g.Group.Proxies = len(g.proxies)
		out.Groups = append(out.Groups, g.Group)
	}
	slices.SortStableFunc(out.Groups, func(a, b Group) int {
		return cmp.Or(-cmp.Compare(a.Places, b.Places), cmp.Compare(a.Field, b.Field))
	})
	return &out
}

// difference is one difference of a resource.
type difference struct {
	resource, action, field string
	was, is                 json.RawMessage
}

// differences compares two configs of one proxy.
func differences(was, is Config) (out []difference) {
	was, is = normalize(was), normalize(is)
	renameClusters(was, is)
	was, is = sorted(renamed(was, addresses(was))), sorted(renamed(is, addresses(is)))
	for _, typeURL := range union(was, is) {
		typ := typeURL[strings.LastIndexByte(typeURL, '.')+1:]
		for _, name := range union(was[typeURL], is[typeURL]) {
			a, before := was[typeURL][name]
			b, after := is[typeURL][name]
			d := differ{resource: name, out: &out}
			switch {
			case !before:
				d.add(Added, typ, nil, map[string]any{"name": name})
			case !after:
				d.add(Removed, typ, map[string]any{"name": name}, nil)
			default:
				d.compare(typ, a, b)
			}
		}
	}
	return out
}

type differ struct {
	resource string
	out      *[]difference
}

// maxValue is the number of bytes of a value in a group. Longer values are shortened.
const maxValue = 200

// add adds a difference. In values, the name of the resource is replaced, so that equal differences
// of several resources are one group.
func (d *differ) add(action, field string, was, is any) {
	value := func(v any) json.RawMessage {
		if v == nil {
			return nil
		}
		b, err := json.Marshal(v)
		if err != nil { // not for decoded JSON
			return nil
		}
		s := strings.ReplaceAll(string(b), d.resource, "*")
		if len(s) > maxValue {
			b, _ = json.Marshal(clip.Text(s, maxValue)) // a string always encodes
			return b
		}
		return json.RawMessage(s)
	}
	*d.out = append(*d.out, difference{d.resource, action, field, value(was), value(is)})
}

// compare compares two values at a path.
func (d *differ) compare(path string, a, b any) {
	switch x := a.(type) {
	case map[string]any:
		if y, same := b.(map[string]any); same && x["@type"] == y["@type"] {
			d.members(path, x, y, ".%s")
			return
		}
	case []any:
		if y, same := b.([]any); same {
			d.lists(path, x, y)
			return
		}
	}
	if !jsonpatch.Equal(a, b) {
		d.add(Changed, path, a, b)
	}
}

// members compares the members of two objects.
func (d *differ) members(path string, x, y map[string]any, step string) {
	for _, key := range union(x, y) {
		a, before := x[key]
		b, after := y[key]
		at := path + fmt.Sprintf(step, shortened(key, step))
		switch {
		case key == "typedConfig" && before && after:
			d.compare(path, a, b)
		case !before:
			d.add(Added, at, nil, b)
		case !after:
			d.add(Removed, at, a, nil)
		default:
			d.compare(at, a, b)
		}
	}
}

// shortened returns the key in a path. Only extensions have names that are equal on all proxies.
func shortened(key, step string) string {
	last := key[strings.LastIndexByte(key, '.')+1:]
	switch {
	case strings.HasPrefix(key, "envoy."):
		return last
	case step == itemStep:
		return ""
	}
	return key
}

// itemStep is the format of the step to an item of a list.
const itemStep = "[%s]"

// lists compares two lists: by the names of their items, if they have unique names, else by index.
func (d *differ) lists(path string, x, y []any) {
	if a, b := named(x), named(y); a != nil && b != nil {
		d.members(path, a, b, itemStep)
		if p, q := common(x, b), common(y, a); !slices.Equal(p, q) {
			d.add(Changed, path+" (order)", p, q)
		}
		return
	}
	if len(x) != len(y) {
		d.add(Changed, path, x, y)
		return
	}
	for i := range x {
		d.compare(path+"[]", x[i], y[i])
	}
}

// named returns the items of a list by name, or nil.
func named(list []any) map[string]any {
	out := map[string]any{}
	for _, it := range list {
		o, _ := it.(map[string]any)
		name, _ := o["name"].(string)
		if _, twice := out[name]; name == "" || twice {
			return nil
		}
		out[name] = it
	}
	return out
}

// common returns the names of the items that the other list also has, in order.
func common(list []any, other map[string]any) (out []string) {
	for _, it := range list {
		name, _ := it.(map[string]any)["name"].(string)
		if _, is := other[name]; is {
			out = append(out, name)
		}
	}
	return out
}

func union[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// causes are known differences between servers, by action and field.
var causes = []struct {
	difference *regexp.Regexp // of the field, the served, and the computed value
	cause      string
}{
	{regexp.MustCompile(`^Cluster\.circuitBreakers\S* (\S*"trackRemaining":true\}\]\} | \S*"trackRemaining":true\}\]\}$)`),
		"counters of the remaining capacity, which only statistics show"},
	{regexp.MustCompile(`^\S*(\.connectTimeout|\.timeout|[iI]dleTimeout|\.requestHeadersTimeout) `),
		"a timeout: the defaults changed in Kuma 2.10; a MeshTimeout sets it explicitly"},
	{regexp.MustCompile(`^\S*filterMetadata\.io\.kuma`),
		"metadata, which only matching by labels reads"},
	{regexp.MustCompile(`^\S*\.requestHeadersTo(Add|Remove) .*x-kuma-tags`),
		"the header x-kuma-tags, which only limits for some clients read"},
	{regexp.MustCompile(`^(Listener|Cluster|ClusterLoadAssignment|RouteConfiguration|Secret) `),
		"one server has another resource for this, or none: check with explain that the service is reachable"},
	{regexp.MustCompile(`^\S*(httpProtocolOptions|tlsParams|upgradeConfigs)\S* `),
		"one server accepts more: HTTP/1.0, WebSocket, or TLS 1.3"},
	{regexp.MustCompile(`^Listener\.filterChains `),
		"other filter chains: on outbound:passthrough, nearside refuses virtual addresses that no listener serves"},
	{regexp.MustCompile(`^\S*\.listenerFilters\S* `),
		"inspection of connections: nearside inspects only where a filter chain needs it"},
}

// causeOf returns the cause of a known difference, or "".
func causeOf(d *difference) string {
	text := strings.Join([]string{strings.ReplaceAll(d.field, " ", ""), string(d.was), string(d.is)}, " ")
	for _, c := range causes {
		if c.difference.MatchString(text) {
			return c.cause
		}
	}
	return ""
}
