package xds

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that responses fall back to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Field numbers of the messages that sharedCodec writes.
const (
	fieldResources       = 2 // DiscoveryResponse, DeltaDiscoveryResponse
	fieldResourceVersion = 1 // envoy.service.discovery.v3.Resource
	fieldResourceBody    = 2
	fieldResourceName    = 3
	fieldAnyURL          = 1 // google.protobuf.Any
	fieldAnyValue        = 2
)

// sharedCodec encodes discovery responses without copying the bodies of their resources: what waits to be written to a
// thousand slow clients is the same bytes once, with some dozens of bytes of its own for each resource and client. Of requests it
// decodes what is used. Everything else is done as usual.
type sharedCodec struct{ encoding.CodecV2 }

func newSharedCodec() sharedCodec { return sharedCodec{encoding.GetCodecV2("proto")} }

// Unmarshal implements encoding.CodecV2.
func (c sharedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	in.decode(b.ReadOnlyData())
	in.st.conn.decoded(data.Len())
	return nil
}

// Marshal implements encoding.CodecV2. The bodies must not change while the message is on its way.
func (c sharedCodec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *discovery.DeltaDiscoveryResponse:
		for _, r := range m.Resources {
			if r.Ttl != nil || r.CacheControl != nil || r.Metadata != nil || r.ResourceName != nil || len(r.Aliases) > 0 {
				return c.CodecV2.Marshal(v) // this server sets none of these
			}
		}
		rest := &discovery.DeltaDiscoveryResponse{
			SystemVersionInfo: m.SystemVersionInfo, TypeUrl: m.TypeUrl, Nonce: m.Nonce, ControlPlane: m.ControlPlane,
			RemovedResources: m.RemovedResources, RemovedResourceNames: m.RemovedResourceNames,
		}
		var e pieces
		if err := e.begin(rest, len(m.Resources)); err != nil {
			return nil, err
		}
		for _, r := range m.Resources {
			e.resource(r)
		}
		return e.end(), nil
	case *discovery.DiscoveryResponse:
		rest := &discovery.DiscoveryResponse{
			VersionInfo: m.VersionInfo, Canary: m.Canary, TypeUrl: m.TypeUrl, Nonce: m.Nonce, ControlPlane: m.ControlPlane,
			ResourceErrors: m.ResourceErrors,
		}
		var e pieces
		if err := e.begin(rest, len(m.Resources)); err != nil {
			return nil, err
		}
		for _, a := range m.Resources {
			e.field(fieldResources, anySize(a))
			e.any(a)
		}
		return e.end(), nil
	}
	return c.CodecV2.Marshal(v)
}

// pieces collects a message as bytes of its own, which lie in one buffer, and bodies that stand between them.
type pieces struct {
	own    []byte
	cuts   []int // where in own the bodies stand
	bodies [][]byte
}

func (e *pieces) begin(rest proto.Message, resources int) (err error) {
	e.own, err = proto.Marshal(rest)
	e.cuts, e.bodies = make([]int, 0, resources), make([][]byte, 0, resources)
	return err
}

func (e *pieces) field(n protowire.Number, size int) {
	e.own = protowire.AppendTag(e.own, n, protowire.BytesType)
	e.own = protowire.AppendVarint(e.own, uint64(size))
}

func (e *pieces) text(n protowire.Number, s string) {
	if s != "" {
		e.own = protowire.AppendTag(e.own, n, protowire.BytesType)
		e.own = protowire.AppendString(e.own, s)
	}
}

// resource writes what this server sets of a resource: name, version and body.
func (e *pieces) resource(r *discovery.Resource) {
	size := textSize(fieldResourceName, r.Name) + textSize(fieldResourceVersion, r.Version)
	if r.Resource != nil {
		size += protowire.SizeTag(fieldResourceBody) + protowire.SizeBytes(anySize(r.Resource))
	}
	e.field(fieldResources, size)
	e.text(fieldResourceName, r.Name)
	e.text(fieldResourceVersion, r.Version)
	if r.Resource != nil {
		e.field(fieldResourceBody, anySize(r.Resource))
		e.any(r.Resource)
	}
}

func (e *pieces) any(a *anypb.Any) {
	e.text(fieldAnyURL, a.TypeUrl)
	if len(a.Value) > 0 {
		e.field(fieldAnyValue, len(a.Value))
		e.cuts, e.bodies = append(e.cuts, len(e.own)), append(e.bodies, a.Value)
	}
}

func (e *pieces) end() mem.BufferSlice {
	out := make(mem.BufferSlice, 0, 2*len(e.bodies)+1)
	from := 0
	for i, to := range e.cuts {
		out = append(out, mem.SliceBuffer(e.own[from:to]), mem.SliceBuffer(e.bodies[i]))
		from = to
	}
	if from < len(e.own) {
		out = append(out, mem.SliceBuffer(e.own[from:]))
	}
	return out
}

func textSize(n protowire.Number, s string) int {
	if s == "" {
		return 0
	}
	return protowire.SizeTag(n) + protowire.SizeBytes(len(s))
}

func anySize(a *anypb.Any) int {
	size := textSize(fieldAnyURL, a.TypeUrl)
	if len(a.Value) > 0 {
		size += protowire.SizeTag(fieldAnyValue) + protowire.SizeBytes(len(a.Value))
	}
	return size
}
