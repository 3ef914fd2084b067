package metadata

import (
	"fmt"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/model/redirect"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxStatusBytes limits an error message, which gRPC sends in a header.
const maxStatusBytes = 2048

// decode returns the Dataplane in the metadata, or nil.
func (s *Source) decode(id string, n *core.Node) (*resource.Resource, error) {
	v := n.GetMetadata().GetFields()[MetadataDataplane]
	if v == nil {
		return nil, nil
	}
	t, ok := v.GetKind().(*structpb.Value_StringValue)
	if !ok {
		return nil, fmt.Errorf("node %q: metadata field %q is not a string; write the Dataplane as one JSON or YAML string",
			id, MetadataDataplane)
	}
	if len(t.StringValue) > s.o.Bytes {
		return nil, fmt.Errorf("node %q: metadata field %q has %d bytes; at most %d are allowed",
			id, MetadataDataplane, len(t.StringValue), s.o.Bytes)
	}
	rs, faults := s.o.Registry.Decode("metadata "+MetadataDataplane, []byte(t.StringValue))
	if err := faults.Err(); err != nil {
		return nil, fmt.Errorf("node %q: %w", id, err)
	}
	if len(rs) != 1 {
		return nil, fmt.Errorf("node %q: metadata field %q holds %d resources; exactly one Dataplane is allowed",
			id, MetadataDataplane, len(rs))
	}
	r := rs[0]
	if r.Kind != "Dataplane" {
		return nil, fmt.Errorf("node %q: metadata field %q holds a %s; only a Dataplane is allowed",
			id, MetadataDataplane, r.Kind)
	}
	if own := r.Mesh + "." + r.Name; own != id {
		return nil, fmt.Errorf("node %q: metadata field %q holds the Dataplane %q of mesh %q, which requires node ID %q; "+
			"change the Dataplane or the node ID", id, MetadataDataplane, r.Name, r.Mesh, own)
	}
	if r.Labels[redirect.Label] != "" {
		return nil, fmt.Errorf("node %q: metadata field %q holds a Dataplane with the label %s, with which the agent "+
			"changes a network namespace; store the Dataplane in a file or over the API of the node",
			id, MetadataDataplane, redirect.Label)
	}
	return r, nil
}
