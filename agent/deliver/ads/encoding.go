package ads

import (
	"slices"
	"sync"
	"weak"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// Field numbers of the messages that are encoded here.
const (
	fieldResources       = 2 // DiscoveryResponse, DeltaDiscoveryResponse
	fieldResourceVersion = 1 // envoy.service.discovery.v3.Resource
	fieldResourceBody    = 2
	fieldResourceName    = 3
	fieldAnyURL          = 1 // google.protobuf.Any
	fieldAnyValue        = 2
)

// encodings caches the last encoded list of resources by type and protocol while it is being sent.
// A policy that changes a thousand clusters changes them for many proxies. They are encoded once,
// and responses that wait for a thousand slow clients share the bytes.
type encodings [2][draft.NumTypes]struct {
	mu   sync.Mutex
	last weak.Pointer[encoded]
}

// encoded is a list of resources as encoded in a response.
type encoded struct {
	of     []*draft.Resource
	pieces mem.BufferSlice // for each resource a header of some dozens of bytes, and its body
	joined mem.BufferSlice // the same in one buffer, once a second client receives it; nil before
}

// of returns resources of a type as encoded in a response, and a value that the caller keeps alive
// until they are sent.
func (e *encodings) of(delta bool, rank int, list []*draft.Resource) (mem.BufferSlice, *encoded) {
	if len(list) == 0 {
		return nil, nil
	}
	at := &e[0][rank]
	if delta {
		at = &e[1][rank]
	}
	if rank == draft.RankSecret { // secrets belong to one proxy, and are not copied
		return encodeResources(delta, rank, list), nil
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if last := at.last.Value(); last != nil && slices.Equal(last.of, list) {
		if last.joined == nil {
			last.joined = mem.BufferSlice{mem.SliceBuffer(last.pieces.Materialize())}
		}
		return last.joined, last
	}
	out := &encoded{of: list, pieces: encodeResources(delta, rank, list)}
	at.last = weak.Make(out)
	return out.pieces, out
}

// encodeResources returns the resources field of a response. It does not copy the bodies, which
// must not change.
func encodeResources(delta bool, rank int, list []*draft.Resource) mem.BufferSlice {
	url := draft.Types[rank]
	bodies, own := make([][]byte, len(list)), 0
	for i, r := range list {
		bodies[i] = r.Body()
		own += encodedSize(delta, url, r, len(bodies[i])) - len(bodies[i])
	}
	out := make(mem.BufferSlice, 0, 2*len(list))
	b := make([]byte, 0, own)
	for i, r := range list {
		from := len(b)
		packed := anySize(url, len(bodies[i]))
		b = protowire.AppendTag(b, fieldResources, protowire.BytesType)
		if delta {
			b = protowire.AppendVarint(b, uint64(resourceSize(r, packed)))
			b = appendText(b, fieldResourceName, r.Name)
			b = appendText(b, fieldResourceVersion, r.Version)
			b = protowire.AppendTag(b, fieldResourceBody, protowire.BytesType)
		}
		b = protowire.AppendVarint(b, uint64(packed))
		b = appendText(b, fieldAnyURL, url)
		if len(bodies[i]) == 0 {
			out = append(out, mem.SliceBuffer(b[from:]))
			continue
		}
		b = protowire.AppendTag(b, fieldAnyValue, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(bodies[i])))
		out = append(out, mem.SliceBuffer(b[from:]), mem.SliceBuffer(bodies[i]))
	}
	return out
}

// encodedSize returns the size in bytes of a resource in a response.
func encodedSize(delta bool, url string, r *draft.Resource, body int) int {
	size := anySize(url, body)
	if delta {
		size = resourceSize(r, size)
	}
	return protowire.SizeTag(fieldResources) + protowire.SizeBytes(size)
}

// resourceSize returns the size of an envoy.service.discovery.v3.Resource around a packed message.
func resourceSize(r *draft.Resource, packed int) int {
	return textSize(fieldResourceName, r.Name) + textSize(fieldResourceVersion, r.Version) +
		protowire.SizeTag(fieldResourceBody) + protowire.SizeBytes(packed)
}

func anySize(url string, body int) int {
	size := textSize(fieldAnyURL, url)
	if body > 0 {
		size += protowire.SizeTag(fieldAnyValue) + protowire.SizeBytes(body)
	}
	return size
}

func textSize(n protowire.Number, s string) int {
	if s == "" {
		return 0
	}
	return protowire.SizeTag(n) + protowire.SizeBytes(len(s))
}

func appendText(b []byte, n protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}
