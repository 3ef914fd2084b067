package accesslog

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/substitution"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const nameFile = "envoy.access_loggers.file"

var urlFile = typeURL(&filev3.FileAccessLog{})

// typeURL returns the type URL of a message. The messages are encoded without the Go types, but
// displaying them requires that the types are linked.
func typeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// Field numbers of envoy.extensions.access_loggers.file.v3.FileAccessLog, and of its
// SubstitutionFormatString and DataSource (envoy.config.core.v3).
const (
	fieldPath         = 1
	fieldLogFormat    = 5
	fieldJSONFormat   = 2
	fieldOmitEmpty    = 3
	fieldTextSource   = 5
	fieldInlineString = 3
)

// fileLog returns the encoded config of Envoy's file logger. A proxy has one for every outbound, so
// fileLog encodes it directly, which is several times faster than marshaling messages. It may
// overwrite scratch.
func fileLog(path, prefix string, t *template, v *values, scratch *[]byte) []byte {
	field, body := protowire.Number(fieldTextSource), (*scratch)[:0]
	if t.json {
		field, body = fieldJSONFormat, t.jsonStruct(body, v)
	} else {
		body = append(body, prefix...)
		body = append(substitution.AppendFormat(body, t.text, v.of), '\n')
	}
	n := len(body)   // the field with the format follows
	if t.omitEmpty { // protobuf encodes it before the oneof
		body = protowire.AppendVarint(protowire.AppendTag(body, fieldOmitEmpty, protowire.VarintType), 1)
	}
	body = protowire.AppendTag(body, field, protowire.BytesType)
	if !t.json {
		body = protowire.AppendVarint(body, uint64(protowire.SizeTag(fieldInlineString)+protowire.SizeBytes(n)))
		body = protowire.AppendTag(body, fieldInlineString, protowire.BytesType)
	}
	*scratch = protowire.AppendBytes(body, body[:n])
	format := (*scratch)[n:]
	b := make([]byte, 0, protowire.SizeTag(fieldPath)+protowire.SizeBytes(len(path))+protowire.SizeTag(fieldLogFormat)+
		protowire.SizeBytes(len(format)))
	b = protowire.AppendString(protowire.AppendTag(b, fieldPath, protowire.BytesType), path)
	return protowire.AppendBytes(protowire.AppendTag(b, fieldLogFormat, protowire.BytesType), format)
}

// jsonStruct appends a JSON format as google.protobuf.Struct with sorted keys. Envoy appends the
// line break.
func (t *template) jsonStruct(b []byte, v *values) []byte {
	order := make([]int, len(t.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(t.keys[a], t.keys[b]) })
	for _, i := range order {
		b = draft.AppendTag(b, t.keys[i], string(substitution.AppendFormat(nil, t.values[i], v.of)))
	}
	return b
}

// IsFIFO reports whether a path is a FIFO of a proxy.
func IsFIFO(s string) bool {
	return strings.HasPrefix(path.Base(s), fifoHead) && strings.HasSuffix(s, fifoTail)
}

// eachRule calls f for every rule of the proxy, in the order from, to, service resources. list is
// the policy's list that contains the rule's items.
func (r *resolver) eachRule(f func(rule *policy.Rule, list string)) {
	k := r.c.Rules.Kind(Kind)
	if k == nil {
		return
	}
	for i := range k.From {
		inbound := func(rules []*policy.Rule, matched []*policy.MatchRule) {
			for _, m := range matched {
				f(&m.Rule, "from")
			}
			for _, rule := range rules {
				f(rule, "from")
			}
		}
		inbound(k.From[i].Rules, k.From[i].Matched)
		for j := range k.From[i].Routes {
			inbound(k.From[i].Routes[j].Rules, k.From[i].Routes[j].Matched)
		}
	}
	for _, rule := range k.To {
		f(rule, "to")
	}
	for _, rule := range k.ToResources {
		f(&rule.Rule, "to")
	}
}

// Limits of the path of a FIFO. A name may have 255 bytes. Some tools limit paths to the size of
// sun_path (108 bytes including the terminator, unix(7)).
const (
	maxFIFOPath = 107
	minFIFOName = len(fifoHead) + 2*fifoHash + len(fifoTail)
	fifoHash    = 8 // bytes
	fifoHead    = "nearside-"
	fifoTail    = ".fifo"
)

// linePipe returns the FIFO for lines to a collector or to a file that the agent writes, and its
// destination. Backends with the same destination share it.
func linePipe(c *policy.Context, owner resource.Key, s sink) *draft.Pipe {
	p := &draft.Pipe{Kind: draft.PipeTCP, Target: s.addr, Prefix: s.prefix, Backend: s.name, Policy: owner}
	target := []string{s.addr, s.prefix}
	if s.kind == sinkFile {
		p.Kind, p.Target, p.Rotation, p.Fallback = draft.PipeFile, s.path, s.rotate.limits(), s.rotate == nil
		target = []string{"", "file", s.path}
	}
	p.Path = path.Join(c.Paths.RunDir(),
		"access", fifoName(maxFIFOPath-len(path.Join(c.Paths.RunDir(), "access"))-1, c.Proxy().Key, target))
	return p
}

// fifoName returns a name that is the same after restarts and for every part of a config. It begins
// with the mesh and proxy as far as they fit; a hash makes it unique.
func fifoName(limit int, proxy resource.Key, target []string) string {
	hash := hashOf(append([]string{proxy.Mesh, proxy.Name}, target...)...)
	name := proxy.Mesh + "." + proxy.Name
	limit -= minFIFOName + 1 // with the hyphen before the hash
	switch {
	case limit <= 0:
		return fifoHead + hash + fifoTail
	case len(name) > limit:
		name = name[:limit]
	}
	return fifoHead + name + "-" + hash + fifoTail
}

func hashOf(values ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(values, "\x00")))
	return hex.EncodeToString(sum[:fifoHash])
}
