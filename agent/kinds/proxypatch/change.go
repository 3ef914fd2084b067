package proxypatch

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// target is what a modification is about.
type target int

const (
	clusters target = iota
	listeners
	networkFilters
	httpFilters
	virtualHosts
	resources // other whole resources, which can be added alone
)

// targets says how each target is written and which operations it has.
var targets = [...]struct {
	name       string
	operations []Operation
	message    proto.Message
}{
	clusters:       {"cluster", []Operation{Add, Patch, Remove}, (*clusterv3.Cluster)(nil)},
	listeners:      {"listener", []Operation{Add, Patch, Remove}, (*listenerv3.Listener)(nil)},
	networkFilters: {"networkFilter", []Operation{AddFirst, AddLast, AddBefore, AddAfter, Patch, Remove}, (*listenerv3.Filter)(nil)},
	httpFilters:    {"httpFilter", []Operation{AddFirst, AddLast, AddBefore, AddAfter, Patch, Remove}, (*hcmv3.HttpFilter)(nil)},
	virtualHosts:   {"virtualHost", []Operation{Add, Patch, Remove}, (*routev3.VirtualHost)(nil)},
	resources:      {"resource", nil, nil},
}

// newMessage returns an empty message of the target.
func (t target) newMessage() proto.Message {
	return targets[t].message.ProtoReflect().New().Interface()
}

// filter is true for the targets in whose lists the order counts.
func (t target) filter() bool { return t == networkFilters || t == httpFilters }

// change is a modification that was read and found good. It is shared by all generations and never changed.
type change struct {
	target target
	op     Operation
	match  match
	at     string // its place in the policy, for warnings
	raw    bool   // a resource of a legacy policy, not a modification

	value  parsed                    // the message as written, but for what is taken apart:
	config parsed                    // of a filter the configuration, of a cluster to patch the HTTP options
	filter draft.Extension           // a filter to add
	chains []*listenerv3.FilterChain // of a listener to patch, those to add
	packs  bool                      // value holds packed messages
	patch  *patch                    // instead of a value; nil for none
}

// parsed is a message with what its written form says beyond it.
type parsed struct {
	message proto.Message // nil for none
	zeros   []zero        // fields that were given with the value that an absent one has
}

// describe names the change in a warning.
func (c *change) describe() string {
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
