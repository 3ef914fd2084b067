package rollout

import (
	"crypto/sha256"
	"encoding/hex"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// listVersion is a content hash over the names and versions of those resources of a list that want
// admits.
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

// endpointName returns the name under which a cluster asks for its endpoints, "" when it is not an
// EDS cluster.
func endpointName(cluster *draft.Resource) string {
	eds, ok := protoField(cluster.Body(), fieldEDSClusterConfig)
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
