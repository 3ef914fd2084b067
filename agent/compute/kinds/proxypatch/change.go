package proxypatch

import (
	"fmt"
	"iter"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Target is what a modification is about.
type Target int

// The targets.
const (
	Clusters Target = iota
	Listeners
	NetworkFilters
	HTTPFilters
	VirtualHosts
	Resources // other whole resources, which can be added alone
)

// targets says how each target is written and which operations it has.
var targets = [...]struct {
	name       string
	operations []Operation
	message    proto.Message
}{
	Clusters:  {"cluster", []Operation{Add, Patch, Remove}, (*clusterv3.Cluster)(nil)},
	Listeners: {"listener", []Operation{Add, Patch, Remove}, (*listenerv3.Listener)(nil)},
	NetworkFilters: {"networkFilter", []Operation{AddFirst, AddLast, AddBefore, AddAfter, Patch, Remove},
		(*listenerv3.Filter)(nil)},
	HTTPFilters: {"httpFilter", []Operation{AddFirst, AddLast, AddBefore, AddAfter, Patch, Remove},
		(*hcmv3.HttpFilter)(nil)},
	VirtualHosts: {"virtualHost", []Operation{Add, Patch, Remove}, (*routev3.VirtualHost)(nil)},
	Resources:    {"resource", nil, nil},
}

// filter is true for the targets in whose lists the order counts.
func (t Target) filter() bool { return t == NetworkFilters || t == HTTPFilters }

// Change is a modification, or a whole resource to add, that was read and is valid. It is shared by
// all generations and never changed.
type Change struct {
	target Target
	op     Operation
	match  match
	at     string // its place in the policy, for warnings
	origin string // of a resource that is added

	value  parsed          // the message as written
	config parsed          // the configuration of the filter in it
	filter draft.Extension // the filter in it
	patch  *patch          // instead of a value; nil for none
}

// parsed is a message with what its written form says beyond it.
type parsed struct {
	message proto.Message // nil for none
	zeros   []zero        // fields that were given with the value that an absent one has
}

// Adds returns the name of the resource that a change adds, and what it is; false for one that adds
// none.
func (c *Change) Adds() (string, Target, bool) {
	if c.op != Add || c.target == VirtualHosts {
		return "", c.target, false
	}
	return nameOf(c.value.message), c.target, true
}

// touches reports whether the change is about one of the fields of its message, of a filter those
// of the configuration.
func (c *Change) touches(fields ...string) bool {
	if c.patch != nil {
		return c.patch.touches(fields...)
	}
	m := c.value.message.ProtoReflect()
	if c.config.message != nil {
		m = c.config.message.ProtoReflect()
	}
	for _, name := range fields {
		if fd := m.Descriptor().Fields().ByJSONName(name); fd != nil && m.Has(fd) {
			return true
		}
	}
	return false
}

// of returns what the patch, or merging a value, makes of a message, which stays as it is.
func (c *Change) of(m proto.Message, value parsed) (proto.Message, error) {
	if c.patch != nil {
		return c.patch.apply(m)
	}
	m = proto.Clone(m)
	return m, merge(m, value)
}

// describe names the change in a warning.
func (c *Change) describe() string {
	return fmt.Sprintf("%s (%s %s)", c.at, targets[c.target].name, c.op)
}

// nameOf returns the name of a whole resource.
func nameOf(m proto.Message) string {
	switch m := m.(type) {
	case interface{ GetName() string }:
		return m.GetName()
	case interface{ GetClusterName() string }:
		return m.GetClusterName()
	}
	return ""
}

// readFilter takes the filter out of a value. One that is added must have a configuration, and so
// must one that is merged unless it says something else.
func (c *Change) readFilter(v *resource.Validator, tree any) bool {
	var a *anypb.Any
	other := false
	switch m := c.value.message.(type) {
	case *listenerv3.Filter:
		c.filter = draft.Extension{Name: m.Name, Packed: m.GetTypedConfig(), Discovery: m.GetConfigDiscovery()}
	case *hcmv3.HttpFilter:
		c.filter = draft.NewHTTPFilter(m)
		other = m.Disabled || m.IsOptional
	default:
		return true
	}
	at := v.Field("typedConfig")
	switch a = c.filter.Packed; {
	case a == nil && c.op == Patch && !other:
		at.Faultf("the configuration is missing: there is nothing to merge")
		return false
	case a == nil && c.op != Patch && c.filter.Discovery == nil:
		at.Faultf("the configuration is missing: Envoy takes no filter without one")
		return false
	case a == nil:
		return true
	}
	m, err := a.UnmarshalNew()
	if err != nil {
		at.Faultf("%s: %s", a.TypeUrl, plainError(err))
		return false
	}
	o, _ := tree.(map[string]any)
	fd := c.value.message.ProtoReflect().Descriptor().Fields().ByName("typed_config")
	c.config = parsed{message: m, zeros: zeros(given(o, fd), m.ProtoReflect())}
	return true
}

// concern says which plans are about a kind of resource, so that a thousand policies about one
// resource each cost a thousand steps and not a million.
type concern struct {
	all   []int            // plans that name no resource, in their order
	named map[string][]int // plans that name one, by its name, in their order
	added map[string]bool  // names of resources that a plan adds
}

func (c *concern) any() bool { return len(c.all) > 0 || len(c.named) > 0 || len(c.added) > 0 }

// note enters a change of a plan. Plans come in their order.
func (e *editor) note(plan int, ch *Change) {
	about, name := &e.about[Listeners], ch.match.listener
	switch ch.target {
	case Clusters:
		about, name = &e.about[Clusters], ch.match.name
	case Listeners:
		name = ch.match.name
	case Resources:
		return
	}
	if added, _, ok := ch.Adds(); ok {
		if about.added == nil {
			about.added = map[string]bool{}
		}
		about.added[added] = true
		return
	}
	if name == nil {
		about.all = appendOnce(about.all, plan)
		return
	}
	if about.named == nil {
		about.named = map[string][]int{}
	}
	about.named[*name] = appendOnce(about.named[*name], plan)
}

func appendOnce(list []int, n int) []int {
	if len(list) > 0 && list[len(list)-1] == n {
		return list
	}
	return append(list, n)
}

// of returns the plans that may be about a resource of a name, in their order.
func (c *concern) of(name string) []int {
	named := c.named[name]
	switch {
	case len(named) == 0:
		return c.all
	case len(c.all) == 0:
		return named
	}
	out := slices.Concat(c.all, named)
	slices.Sort(out)
	return slices.Compact(out)
}

// from returns each plan, by its index, from a step on that may be about a resource of a name, with
// the changes that are left of it.
func (e *editor) from(s step, t Target, name string) iter.Seq2[int, []*Change] {
	return func(yield func(int, []*Change) bool) {
		for _, i := range e.about[t].of(name) {
			if i < s.plan {
				continue
			}
			changes := e.plans[i].Changes
			if i == s.plan {
				changes = changes[s.change:]
			}
			if !yield(i, changes) {
				return
			}
		}
	}
}
