package proxypatch

import (
	"cmp"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// cluster returns what the plans make of a cluster from a step on, nil when one of them removes it.
func (e *editor) cluster(x *draft.Cluster, s step) *draft.Cluster {
	removed := false
	e.from(s, clusters, x.Message.GetName(), func(p *plan, changes []*change) {
		if removed {
			return
		}
		work := x
		var last *change
		for _, ch := range changes {
			if ch.target != clusters || ch.op == Add || !ch.match.cluster(work) {
				continue
			}
			if ch.op == Remove {
				removed = true
				return
			}
			if work == x {
				c := *x
				work = &c
			}
			last = ch
			if err := patchCluster(work, ch); err != nil {
				e.fault(p, ch, clusterStays(x, ch), err)
				return
			}
		}
		if last == nil {
			return
		}
		if err := goodCluster(work, x); err != nil {
			e.fault(p, last, clusterStays(x, last), err)
			return
		}
		x = work
	})
	if removed {
		return nil
	}
	return x
}

func (m *match) cluster(x *draft.Cluster) bool {
	return is(m.name, x.Message.GetName()) && is(m.origin, x.MadeBy())
}

// is reports whether a text is the one that is wanted; nil wants any.
func is(want *string, s string) bool { return want == nil || *want == s }

// clusterStays says what stays, in words that are the same for all clusters that a change is about, since equal
// warnings are kept once.
func clusterStays(x *draft.Cluster, ch *change) string {
	if ch.match.name != nil {
		return fmt.Sprintf("the cluster %q stays", x.Message.GetName())
	}
	return cmp.Or(x.MadeBy(), "other") + " clusters stay"
}

// patchCluster changes a cluster whose message and HTTP options it replaces.
func patchCluster(x *draft.Cluster, ch *change) error {
	if ch.patch != nil && ch.patch.touches("typedExtensionProtocolOptions") {
		m, err := x.Whole()
		if err != nil {
			return err
		}
		after, err := ch.patch.apply(m)
		if err != nil {
			return err
		}
		return x.SetWhole(after.(*clusterv3.Cluster))
	}
	if ch.patch != nil {
		after, err := ch.patch.apply(x.Message)
		if err == nil {
			x.Message = after.(*clusterv3.Cluster)
		}
		return err
	}
	x.Message = proto.Clone(x.Message).(*clusterv3.Cluster)
	if err := merge(x.Message, ch.value); err != nil {
		return err
	}
	if err := broken(x.Message, ch.packs); err != nil {
		return err
	}
	if ch.config.message == nil {
		return nil
	}
	const at = "typedExtensionProtocolOptions: " + draft.NameHTTPOptions
	if _, ok := ch.config.message.(*httpv3.HttpProtocolOptions); !ok {
		return fmt.Errorf("%s: the value is of type %s", at, ch.config.message.ProtoReflect().Descriptor().FullName())
	}
	options := &httpv3.HttpProtocolOptions{}
	if x.HTTP != nil {
		options = proto.Clone(x.HTTP).(*httpv3.HttpProtocolOptions)
	}
	x.HTTP = options
	err := merge(options, ch.config)
	if err == nil {
		err = broken(options, true)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// goodCluster returns what is wrong with a cluster after patching, where it was not wrong before.
func goodCluster(x, before *draft.Cluster) error {
	if x.Message.GetName() != before.Message.GetName() {
		return fmt.Errorf("the name becomes %q: a patch cannot rename", x.Message.GetName())
	}
	return firstNew(func(v *resource.Validator) { checkCluster(v, x.Message) }, func(v *resource.Validator) { checkCluster(v, before.Message) })
}

// firstNew returns the first fault that one check finds and the other does not.
func firstNew(after, before func(v *resource.Validator)) error {
	var found, known []resource.Fault
	after(resource.NewValidator("", &found))
	if len(found) == 0 {
		return nil
	}
	before(resource.NewValidator("", &known))
	for _, f := range found {
		if !contains(known, f) {
			return firstOf([]resource.Fault{f})
		}
	}
	return nil
}

func contains(list []resource.Fault, f resource.Fault) bool {
	for _, g := range list {
		if g == f {
			return true
		}
	}
	return false
}
