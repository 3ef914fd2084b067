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

// Target is the kind of object that a modification changes.
type Target int

// Targets.
const (
	Clusters Target = iota
	Listeners
	NetworkFilters
	HTTPFilters
	VirtualHosts
	Resources // other whole resources, which can only be added
)

// targets holds the name and operations of each target.
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

// filter reports whether the target is an ordered list of filters.
func (t Target) filter() bool { return t == NetworkFilters || t == HTTPFilters }

// Change is a valid modification, or a whole resource to add. It is shared and immutable.
type Change struct {
	target Target
	op     Operation
	match  match
	at     string // its path in the policy, for warnings
	origin string // of an added resource

	value  parsed          // the given message
	config parsed          // the config of the filter in value
	filter draft.Extension // the filter in value
	patch  *patch          // used instead of value; nil for none
}

// parsed is a message with information from its JSON form that the message does not contain.
type parsed struct {
	message proto.Message // nil for none
	zeros   []zero        // fields that were explicitly set to their zero value
}

// Adds returns the name and target of the resource that the change adds, or false if it adds none.
func (c *Change) Adds() (string, Target, bool) {
	if c.op != Add || c.target == VirtualHosts {
		return "", c.target, false
	}
	return nameOf(c.value.message), c.target, true
}

// touches reports whether the change affects one of the fields of its message, or, for a filter, of
// its config.
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

// of returns the result of applying the patch or merging a value into m. It does not modify m.
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

// readFilter extracts the filter from the value. An added filter must have a config. A merged one
// must have a config or change another field.
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
		at.Faultf("the configuration is missing: give the fields to merge")
		return false
	case a == nil && c.op != Patch && c.filter.Discovery == nil:
		at.Faultf("the configuration is missing: Envoy requires one")
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

// planIndex indexes the plans that affect a kind of resource by name, so that a thousand policies
// for one resource each take a thousand steps instead of a million.
type planIndex struct {
	all   []int            // plans without a name, in order
	named map[string][]int // plans by resource name, in order
	added map[string]bool  // names of added resources
}

func (c *planIndex) any() bool { return len(c.all) > 0 || len(c.named) > 0 || len(c.added) > 0 }

// note adds a change of a plan to the index. Plans must be added in order.
func (e *editor) note(plan int, ch *Change) {
	index, name := &e.index[Listeners], ch.match.listener
	switch ch.target {
	case Clusters:
		index, name = &e.index[Clusters], ch.match.name
	case Listeners:
		name = ch.match.name
	case Resources:
		return
	}
	if added, _, ok := ch.Adds(); ok {
		if index.added == nil {
			index.added = map[string]bool{}
		}
		index.added[added] = true
		return
	}
	if name == nil {
		index.all = appendOnce(index.all, plan)
		return
	}
	if index.named == nil {
		index.named = map[string][]int{}
	}
	index.named[*name] = appendOnce(index.named[*name], plan)
}

func appendOnce(list []int, n int) []int {
	if len(list) > 0 && list[len(list)-1] == n {
		return list
	}
	return append(list, n)
}

// of returns the plans that may affect a resource with a name, in order.
func (c *planIndex) of(name string) []int {
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

// from returns the index and remaining changes of each plan that may affect a resource with a name,
// starting at a step.
func (e *editor) from(s step, t Target, name string) iter.Seq2[int, []*Change] {
	return func(yield func(int, []*Change) bool) {
		for _, i := range e.index[t].of(name) {
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
