package ads

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
)

// Bounds of one request. RecvBytes bounds all of it.
const (
	maxRequestBytes  = 1 << 20   // but for the names and versions of resources
	maxMetadataBytes = 256 << 10 // of the node's metadata, as encoded
	// nameBytes is what the server takes a name to cost beside its letters, in bytes: where it lies
	// decoded, in the subscription and among the holdings.
	nameBytes = 128
)

// incoming is a request as the codec reads it for a stream: only what the server uses is decoded.
type incoming struct {
	st    *adsStream
	first bool // of its stream; only the metadata of that one is used
	msg   proto.Message
	err   error // why the request is refused
}

// receive reads the next request of a stream into msg. A request that is refused has a gRPC status.
func receive(str grpc.ServerStream, st *adsStream, first bool, msg proto.Message) error {
	in := incoming{st: st, first: first, msg: msg}
	if err := str.RecvMsg(&in); err != nil {
		return err
	}
	return in.err
}

// requestFields are the field numbers of a request whose handling differs.
type requestFields struct {
	node  protowire.Number
	names []protowire.Number // and versions
}

var (
	deltaFields = requestFields{node: 1, names: []protowire.Number{3, 4, 5}}
	sotwFields  = requestFields{node: 2, names: []protowire.Number{3}}
)

// requestFilters say what of a request is decoded: all that the server uses.
type requestFilters struct{ delta, sotw filter }

// newRequestFilters returns the filters for requests of whose node metadata the fields at these
// paths are used. What a client says of itself is used of the first request of a stream.
func newRequestFilters(metadata [][]string, first bool) *requestFilters {
	version := onlyFields(map[protowire.Number]filter{1: nil}) // of a BuildVersion
	// category, disabled, type_urls
	extension := onlyFields(map[protowire.Number]filter{2: nil, 5: nil, 6: nil})
	// id, metadata, user agent
	fields := map[protowire.Number]filter{1: nil, 3: onlyTexts(metadata), 6: nil, 7: nil, 8: version}
	if first {
		fields[9] = extension
	}
	node := onlyFields(fields)
	fault := onlyFields(map[protowire.Number]filter{1: nil, 2: nil}) // without its details
	return &requestFilters{
		// type_url, resource_names_subscribe, resource_names_unsubscribe, initial_resource_versions,
		// response_nonce
		delta: onlyFields(map[protowire.Number]filter{1: node, 2: nil, 3: nil, 4: nil, 5: nil, 6: nil, 7: fault}),
		// version_info, resource_names, type_url, response_nonce
		sotw: onlyFields(map[protowire.Number]filter{1: nil, 2: node, 3: nil, 4: nil, 5: nil, 6: fault}),
	}
}

// decode reads a request. What is wrong with it is left in err.
func (in *incoming) decode(raw []byte) {
	fields, filters := sotwFields, in.st.srv.later
	if in.first {
		filters = in.st.srv.first
	}
	keep := filters.sotw
	if _, delta := in.msg.(*discovery.DeltaDiscoveryRequest); delta {
		fields, keep = deltaFields, filters.delta
	}
	size, ok := measure(raw, fields)
	if !ok {
		in.err = status.Error(codes.InvalidArgument, "the request is not a discovery request: its encoding is broken")
		return
	}
	if in.err = size.check(); in.err != nil {
		return
	}
	if in.err = in.st.charge(size.cost()); in.err != nil {
		return
	}
	kept, _ := keep(make([]byte, 0, len(raw)), raw)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(kept, in.msg); err != nil {
		in.st.release(size.cost())
		in.err = status.Errorf(codes.InvalidArgument, "the request is not a discovery request: %v", err)
		return
	}
	in.st.costs <- size.cost()
}

// requestSize is what a request has of each that is bounded.
type requestSize struct {
	names     int // names of resources, and versions
	nameBytes int // of them, as encoded
	metadata  int // bytes of the node's metadata, as encoded
	rest      int // bytes of all but the names
}

// cost is what the names of the request cost in memory.
func (s requestSize) cost() int64 { return int64(s.nameBytes) + int64(s.names)*nameBytes }

func (s requestSize) check() error {
	switch {
	case s.metadata > maxMetadataBytes:
		return status.Errorf(codes.InvalidArgument, "the metadata of the node has %d bytes, "+
			"at most %d are taken: shorten node.metadata in the bootstrap", s.metadata, maxMetadataBytes)
	case s.rest > maxRequestBytes:
		return status.Errorf(codes.InvalidArgument, "the request has %d bytes beside the names of resources, "+
			"at most %d are taken: shorten node in the bootstrap", s.rest, maxRequestBytes)
	case s.names > rollout.MaxNames:
		return status.Errorf(codes.ResourceExhausted, "the request has %d names of resources, "+
			"at most %d are taken: reduce what the proxy reaches", s.names, rollout.MaxNames)
	}
	return nil
}

// measure returns the sizes of a request; ok is false when it is broken.
func measure(raw []byte, of requestFields) (s requestSize, ok bool) {
	for f := range fieldsOf(raw, &ok) {
		switch {
		case f.num == of.node:
			s.rest += len(f.whole)
			var intact bool
			for n := range fieldsOf(f.value, &intact) {
				if n.num == 3 {
					s.metadata += len(n.value)
				}
			}
			if !intact {
				return s, false
			}
		case f.num == of.names[0], len(of.names) > 1 && (f.num == of.names[1] || f.num == of.names[2]):
			s.names++
			s.nameBytes += len(f.whole)
		default:
			s.rest += len(f.whole)
		}
	}
	return s, ok
}

// withoutNode puts a node of nothing but the id in the place of the one of a request, since the
// stream handlers keep it.
func (st *adsStream) withoutNode(req any) {
	switch r := req.(type) {
	case *discovery.DeltaDiscoveryRequest:
		if r.Node != nil {
			r.Node = &core.Node{Id: r.Node.Id}
		}
	case *discovery.DiscoveryRequest:
		if r.Node != nil {
			r.Node = &core.Node{Id: r.Node.Id}
		}
	}
}
