package check

import (
	"net/url"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// cache holds the findings of single resources: of the last list of each kind, and by shape. The
// only resources that it keeps alive are those of the last config.
type cache struct {
	plans *plans
	last  [envoy.NumKinds]results
	prior [envoy.NumKinds]results // of the last previous config; see [Checker.SameFindings]
	// repeats holds the findings of the network filters of the current check.
	repeats repeats
	types   [envoy.NumKinds]*shapeType
	// shapes holds a template for each shape, or nil for a shape that cannot have one.
	shapes map[string]*template
	// filters holds the types of network filters that have shapes, by type URL.
	filters map[string]*shapeType
	shaper  shaper
}

// results holds the findings of a list of resources, in its order.
type results struct {
	list []*envoy.Resource
	of   []*checked
}

func (c *cache) begin() {
	if c.plans == nil {
		c.plans = newPlans()
		c.types, c.shapes = shapeTypes(), map[string]*template{}
		c.filters = filterTypes(c.types[envoy.KindListener])
	}
	c.repeats = repeats{shaper: c.repeats.shaper}
}

// all returns the findings of the resources of a kind. Most lists differ from the last one in a few
// resources only.
func (c *cache) all(k envoy.Kind, list []*envoy.Resource) []*checked {
	return c.allOf(&c.last[k], k, list)
}

// allOf is like all. It uses and replaces the last findings.
func (c *cache) allOf(last *results, k envoy.Kind, list []*envoy.Resource) []*checked {
	if slices.Equal(last.list, list) {
		return last.of
	}
	out := make([]*checked, len(list))
	j := 0
	for i, r := range list {
		for skip := j; skip < min(j+4, len(last.list)); skip++ {
			if last.list[skip] == r {
				out[i], j = last.of[skip], skip+1
				break
			}
		}
		if out[i] == nil {
			out[i] = c.get(k, r)
			if j < len(last.list) && last.list[j].Name == r.Name {
				j++ // another form of the resource
			}
		}
	}
	*last = results{slices.Clone(list), out}
	return out
}

// get returns the findings of a single resource. It examines the first resource of each shape and
// derives the findings of the others.
func (c *cache) get(k envoy.Kind, r *envoy.Resource) *checked {
	s := &c.shaper
	if c.types[k] == nil || !s.take(k, c.types[k], r.Body()) || s.names[s.own] != r.Name {
		return c.examine(k, r)
	}
	t, known := c.shapes[string(s.key)]
	if t != nil {
		return t.with(s)
	}
	out := c.examine(k, r)
	if !known {
		if len(c.shapes) >= maxShapes {
			clear(c.shapes)
		}
		c.shapes[string(s.key)] = newTemplate(s, k, out)
	}
	return out
}

// examine decodes a resource and checks it without regard to other resources.
func (c *cache) examine(k envoy.Kind, r *envoy.Resource) *checked {
	out := &checked{}
	w := &walker{subject: &subject{resource: finding.Position{Type: k.URL(), Resource: r.Name}, out: out}, cache: c}
	m := k.New()
	if err := decoding().Unmarshal(r.Body(), m); err != nil {
		w.report(0, finding.Reject, "", "it cannot be decoded: %v", err)
		return out
	}
	if strings.HasPrefix(r.Name, xdstpScheme) {
		if u, err := url.Parse(r.Name); err != nil || strings.Count(u.Path, "/") < 2 {
			w.report(112, finding.Reject, "name", "%q is no name of the form xdstp://authority/type/id", clip.Value(r.Name))
		}
	}
	if name := envoy.ResourceName(m); name != r.Name {
		w.report(kinds[k].nameRule, finding.Reject, "", "the resource is named %q but sent as %q: use one name",
			clip.Value(name), clip.Value(r.Name))
	}
	w.root(m)
	return out
}

// xdstpScheme is the prefix of names that Envoy reads as URLs.
const xdstpScheme = "xdstp:"

// kinds holds, by kind, the rule about a resource with another name than the requested one, the
// rule about duplicate names, and the word for the kind in messages.
var kinds = [envoy.NumKinds]struct {
	nameRule, duplicateRule int
	word                    string
}{
	envoy.KindSecret:   {111, 111, "secret"},
	envoy.KindCluster:  {111, 73, "cluster"},
	envoy.KindEndpoint: {82, 111, "the endpoint list"},
	envoy.KindListener: {111, 26, "listener"},
	envoy.KindRoute:    {72, 111, "the route configuration"},
}
