package ads

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the fallback codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// sharedCodec encodes discovery responses from resources that are already encoded; see [encodings].
// It decodes only the used fields of requests. Other messages use the standard codec.
type sharedCodec struct{ encoding.CodecV2 }

func newSharedCodec() sharedCodec { return sharedCodec{encoding.GetCodecV2("proto")} }

// outgoing is a discovery response: a message without resources, and the encoded resources.
type outgoing struct {
	rest      proto.Message
	resources mem.BufferSlice
}

// Unmarshal implements encoding.CodecV2.
func (c sharedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	switch in := v.(type) {
	case *incoming:
		b := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer b.Free()
		in.decode(b.ReadOnlyData())
		in.st.conn.decoded(data.Len())
		return nil
	case *admissionRequest:
		b := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer b.Free()
		in.decode(b.ReadOnlyData())
		return nil
	case *ownDrainRequest:
		b := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer b.Free()
		in.decode(b.ReadOnlyData())
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal implements encoding.CodecV2.
func (c sharedCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*outgoing)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	rest, err := proto.Marshal(m.rest)
	if err != nil {
		return nil, err
	}
	out := make(mem.BufferSlice, 0, 1+len(m.resources))
	if len(rest) > 0 {
		out = append(out, mem.SliceBuffer(rest))
	}
	return append(out, m.resources...), nil
}
