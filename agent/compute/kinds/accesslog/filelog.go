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

// typeURL is the type of a packed message. What is packed here is written without the message, but
// whoever shows it needs the type to be known.
func typeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// Field numbers of envoy.extensions.access_loggers.file.v3.FileAccessLog, and of the
// SubstitutionFormatString and the DataSource (envoy.config.core.v3) inside it.
const (
	fieldPath         = 1
	fieldLogFormat    = 5
	fieldJSONFormat   = 2
	fieldOmitEmpty    = 3
	fieldTextSource   = 5
	fieldInlineString = 3
)

// fileLog is the config of Envoy's file logger. A proxy has one for every outbound, so its wire
// form is written directly: building the messages first costs several times as much. scratch is
// room that may be used until it returns.
func fileLog(path, prefix string, t *template, v *values, scratch *[]byte) []byte {
	field, body := protowire.Number(fieldTextSource), (*scratch)[:0]
	if t.json {
		field, body = fieldJSONFormat, t.jsonStruct(body, v)
	} else {
		body = append(body, prefix...)
		body = append(substitution.AppendFormat(body, t.text, v.of), '\n')
	}
	n := len(body)   // what follows it is the field with the format
	if t.omitEmpty { // the library writes what is no oneof first
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

// jsonStruct appends a JSON format as google.protobuf.Struct, its fields sorted by key. Envoy adds
// the line break itself.
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

// IsFIFO reports whether a path is that of a FIFO of some proxy.
func IsFIFO(s string) bool {
	return strings.HasPrefix(path.Base(s), fifoHead) && strings.HasSuffix(s, fifoTail)
}

// eachRule calls f for every rule of the proxy, in the order from, to, real resources. list is the
// list that the items of the rule stand in.
func (r *resolver) eachRule(f func(rule *policy.Rule, list string)) {
	k := r.c.Rules.Kind(Kind)
	if k == nil {
		return
	}
	for i := range k.From {
		arriving := func(rules []*policy.Rule, matched []*policy.MatchRule) {
			for _, m := range matched {
				f(&m.Rule, "from")
			}
			for _, rule := range rules {
				f(rule, "from")
			}
		}
		arriving(k.From[i].Rules, k.From[i].Matched)
		for j := range k.From[i].Routes {
			arriving(k.From[i].Routes[j].Rules, k.From[i].Routes[j].Matched)
		}
	}
	for _, rule := range k.To {
		f(rule, "to")
	}
	for _, rule := range k.ToResources {
		f(&rule.Rule, "to")
	}
}

// Bounds of the path of a FIFO: a name may have 255 bytes, and tools that list sockets and FIFOs
// alike know no path that sun_path (108 bytes with its end, unix(7)) could not hold.
const (
	maxFIFOPath = 107
	minFIFOName = len(fifoHead) + 2*fifoHash + len(fifoTail)
	fifoHash    = 8 // bytes
	fifoHead    = "nearside-"
	fifoTail    = ".fifo"
)

// linePipe is the FIFO for the lines of a proxy to a collector or a file that the agent writes,
// with what lies behind it. Two backends with the same destination share it.
func linePipe(c *policy.Context, owner resource.Key, s sink) *draft.Pipe {
	p := &draft.Pipe{Kind: draft.PipeTCP, Target: s.addr, Prefix: s.prefix, Backend: s.name, Policy: owner}
	what := []string{s.addr, s.prefix}
	if s.kind == sinkFile {
		p.Kind, p.Target, p.Rotation = draft.PipeFile, s.path, s.rotate.limits()
		what = []string{"", "file", s.path}
	}
	p.Path = path.Join(c.RunDir, "access", fifoName(maxFIFOPath-len(path.Join(c.RunDir, "access"))-1, c.Proxy().Key, what))
	return p
}

// fifoName is the same on every start and for every part of a config. It begins with the mesh and
// the proxy as far as they fit; a hash keeps it unique.
func fifoName(room int, proxy resource.Key, what []string) string {
	hash := hashOf(append([]string{proxy.Mesh, proxy.Name}, what...)...)
	name := proxy.Mesh + "." + proxy.Name
	room -= minFIFOName + 1 // with the hyphen before the hash
	switch {
	case room <= 0:
		return fifoHead + hash + fifoTail
	case len(name) > room:
		name = name[:room]
	}
	return fifoHead + name + "-" + hash + fifoTail
}

func hashOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:fifoHash])
}
