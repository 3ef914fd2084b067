package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// Lists of resources are sorted by name and never changed once made, so that all streams share those of the sealed
// configs. What a client has is thus one slice header, not a map of names.

// sameList says whether two lists are the same slice; two empty ones are.
func sameList(a, b []*draft.Resource) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// findResource returns the resource of a name, nil when the list has none.
func findResource(list []*draft.Resource, name string) *draft.Resource {
	i, ok := slices.BinarySearchFunc(list, name, func(r *draft.Resource, name string) int { return strings.Compare(r.Name, name) })
	if !ok {
		return nil
	}
	return list[i]
}

// mergeLists returns base with the resources of over put in by name and those of the names in without left out.
// Both lists are sorted; base is returned as it is when nothing differs.
func mergeLists(base, over []*draft.Resource, without func(name string) bool) []*draft.Resource {
	out := make([]*draft.Resource, 0, len(base)+len(over))
	differs := false
	i, j := 0, 0
	for i < len(base) || j < len(over) {
		var r *draft.Resource
		switch {
		case j == len(over) || i < len(base) && base[i].Name < over[j].Name:
			r = base[i]
			i++
			if without != nil && without(r.Name) {
				differs = true
				continue
			}
		case i == len(base) || over[j].Name < base[i].Name:
			r, differs = over[j], true
			j++
		default:
			r = over[j]
			differs = differs || r != base[i]
			i, j = i+1, j+1
		}
		out = append(out, r)
	}
	if !differs {
		return base
	}
	return slices.Clip(out)
}

// listVersion is a content hash over the names and versions of those resources of a list that want admits.
func listVersion(list []*draft.Resource, want func(name string) bool) string {
	h := sha256.New()
	var buf []byte
	for _, r := range list {
		if want(r.Name) {
			buf = append(buf[:0], r.Name...)
			buf = append(buf, 0)
			buf = append(buf, r.Version...)
			buf = append(buf, 0)
			h.Write(buf)
		}
	}
	var sum [sha256.Size]byte
	return hex.EncodeToString(h.Sum(sum[:0])[:8])
}

// Field numbers of envoy.config.cluster.v3.Cluster.
const (
	fieldEDSClusterConfig = 3
	fieldEDSServiceName   = 2
)

// endpointName returns the name under which a cluster asks for its endpoints, "" when it is not an EDS cluster.
func endpointName(cluster *draft.Resource) string {
	eds, ok := protoField(cluster.Body, fieldEDSClusterConfig)
	if !ok {
		return ""
	}
	if name, _ := protoField(eds, fieldEDSServiceName); len(name) > 0 {
		return string(name)
	}
	return cluster.Name
}

// protoField returns the last length-delimited field of a number at the top level of a message.
func protoField(body []byte, number protowire.Number) (value []byte, ok bool) {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return nil, false
		}
		body = body[n:]
		if num == number && typ == protowire.BytesType {
			v, n := protowire.ConsumeBytes(body)
			if n < 0 {
				return nil, false
			}
			value, ok = v, true
		}
		if n = protowire.ConsumeFieldValue(num, typ, body); n < 0 {
			return nil, false
		}
		body = body[n:]
	}
	return value, ok
}
