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

// Limits for one request. RecvBytes limits its total size.
const (
	maxRequestBytes  = 1 << 20   // without the names and versions of resources
	maxMetadataBytes = 256 << 10 // encoded metadata of the node
	// nameBytes is the estimated memory for a name in bytes, in addition to its characters:
	// decoded, in the subscription, and as a holding.
	nameBytes = 128
)

// incoming is a request to be decoded by the codec, which decodes only the used fields.
type incoming struct {
	st    *adsStream
	first bool // first of its stream; only its metadata is used
	msg   proto.Message
	err   error // reason to refuse the request
}

// receive reads the next request of a stream into msg. The error for a refused request has a gRPC
// status.
func receive(str grpc.ServerStream, st *adsStream, first bool, msg proto.Message) error {
	in := incoming{st: st, first: first, msg: msg}
	if err := str.RecvMsg(&in); err != nil {
		return err
	}
	return in.err
}

// requestFields are the numbers of the fields of a request that are measured separately.
type requestFields struct {
	node  protowire.Number
	names []protowire.Number // names and versions
}

var (
	deltaFields = requestFields{node: 1, names: []protowire.Number{3, 4, 5}}
	sotwFields  = requestFields{node: 2, names: []protowire.Number{3}}
)

// requestFilters select the fields of requests that are decoded.
type requestFilters struct{ delta, sotw filter }

// newRequestFilters returns the filters for requests. metadata lists the paths of the used fields
// of the node's metadata. The extensions of a client are used only in the first request of a
// stream.
func newRequestFilters(metadata [][]string, first bool) *requestFilters {
	version := onlyFields(map[protowire.Number]filter{1: nil}) // BuildVersion
	// category, disabled, type_urls
	extension := onlyFields(map[protowire.Number]filter{2: nil, 5: nil, 6: nil})
	// id, metadata, user agent
	fields := map[protowire.Number]filter{1: nil, 3: onlyTexts(metadata), 6: nil, 7: nil, 8: version}
	if first {
		fields[9] = extension
	}
	node := onlyFields(fields)
	fault := onlyFields(map[protowire.Number]filter{1: nil, 2: nil}) // without details
	return &requestFilters{
		// type_url, resource_names_subscribe, resource_names_unsubscribe, initial_resource_versions,
		// response_nonce
		delta: onlyFields(map[protowire.Number]filter{1: node, 2: nil, 3: nil, 4: nil, 5: nil, 6: nil, 7: fault}),
		// version_info, resource_names, type_url, response_nonce
		sotw: onlyFields(map[protowire.Number]filter{1: nil, 2: node, 3: nil, 4: nil, 5: nil, 6: fault}),
	}
}

// decode decodes a request. It sets err if the request is refused.
func (in *incoming) decode(raw []byte) {
	fields, filters := sotwFields, in.st.srv.later
	if in.first {
		filters = in.st.srv.first
	}
	fieldFilter := filters.sotw
	if _, delta := in.msg.(*discovery.DeltaDiscoveryRequest); delta {
		fields, fieldFilter = deltaFields, filters.delta
	}
	size, ok := measure(raw, fields)
	if !ok {
		in.err = status.Error(codes.InvalidArgument, "the request is not a valid discovery request")
		return
	}
	if in.err = size.check(); in.err != nil {
		return
	}
	if in.err = in.st.charge(size.cost()); in.err != nil {
		return
	}
	kept, _ := fieldFilter(make([]byte, 0, len(raw)), raw)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(kept, in.msg); err != nil {
		in.st.release(size.cost())
		in.err = status.Errorf(codes.InvalidArgument, "the request is not a discovery request: %v", err)
		return
	}
	in.st.costs <- size.cost()
}

// requestSize contains the limited sizes of a request.
type requestSize struct {
	names     int // number of resource names and versions
	nameBytes int // their encoded size
	metadata  int // encoded size of the node's metadata
	rest      int // encoded size of everything but the names
}

// cost returns the memory for the names of the request in bytes.
func (s requestSize) cost() int64 { return int64(s.nameBytes) + int64(s.names)*nameBytes }

func (s requestSize) check() error {
	switch {
	case s.metadata > maxMetadataBytes:
		return status.Errorf(codes.InvalidArgument, "the metadata of the node has %d bytes; "+
			"at most %d are allowed: shorten node.metadata in the bootstrap", s.metadata, maxMetadataBytes)
	case s.rest > maxRequestBytes:
		return status.Errorf(codes.InvalidArgument, "the request has %d bytes beside the names of resources; "+
			"at most %d are allowed: shorten node in the bootstrap", s.rest, maxRequestBytes)
	case s.names > rollout.MaxNames:
		return status.Errorf(codes.ResourceExhausted, "the request has %d names of resources; "+
			"at most %d are allowed: reduce what the proxy reaches", s.names, rollout.MaxNames)
	}
	return nil
}

// measure returns the size of a request. ok reports whether the encoding is valid.
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

// withoutNode reduces the node of a request to its id, because the stream handlers store it.
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
