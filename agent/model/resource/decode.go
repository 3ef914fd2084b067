package resource

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/secret"
)

// SchemaVersion is the newest Kuma version whose fields are known, with their meaning.
// Each field of that version is in effect, or docs/resources.md says why not.
const SchemaVersion = "2.14"

// LaterVersion is the release of nearside that is to support the parts of Kuma 2.14 that this one
// refuses: workload identities, zone proxies in a Dataplane, and unified resource naming.
const LaterVersion = "nearside 0.3"

// Decode decodes a stream of YAML or JSON documents in the universal or the Kubernetes format,
// within the default limits. It returns all valid resources, and all faults of the other documents.
// A Mesh without settings is omitted if a later document defines it. file is used only in faults.
// Empty documents are skipped and not counted.
func (r *Registry) Decode(file string, data []byte) ([]*Resource, Faults) {
	return r.DecodeLimits(file, data, Limits{})
}

// DecodeOne decodes a text that must contain exactly one resource.
func (r *Registry) DecodeOne(data []byte) (*Resource, error) {
	rs, faults := r.Decode("", data)
	switch {
	case len(faults) > 0:
		return nil, faults
	case len(rs) != 1:
		return nil, fmt.Errorf("%d resources, want one", len(rs))
	}
	return rs[0], nil
}

// DecodeLimits is like Decode with other limits.
func (r *Registry) DecodeLimits(file string, data []byte, lim Limits) ([]*Resource, Faults) {
	return r.decode(file, data, mode{lim: lim})
}

// DecodeShown is like Decode for documents that an agent printed, or that are sent to one:
// [secret.Redacted] is accepted in place of a secret. Documents that contain it are not validated,
// because only the agent has the secret.
func (r *Registry) DecodeShown(file string, data []byte) ([]*Resource, Faults) {
	return r.decode(file, data, mode{shown: bytes.Contains(data, []byte(secret.Redacted))})
}

// DecodeOver is like Decode for documents that may have been read from the agent: it replaces
// [secret.Redacted] by the secret at the same position of the resource that stored returns. It
// calls stored only for documents that contain a mark; stored returns nil for an unknown resource.
func (r *Registry) DecodeOver(data []byte, stored func(Key) *Resource) ([]*Resource, Faults) {
	if !bytes.Contains(data, []byte(secret.Redacted)) {
		stored = nil
	}
	return r.decode("", data, mode{stored: stored})
}

// mode holds the options for decoding the documents of a stream.
type mode struct {
	lim Limits
	// returns the resource whose secrets replace marks; nil: marks are not replaced
	stored func(Key) *Resource
	shown  bool                                                   // marks remain, for an agent to replace
	tags   func(*strict.Decoder, []strict.Pair) map[string]string // of [Registry.Sharing]
}

// decoder decodes one document.
type decoder struct {
	strict.Decoder
	mode
}

func newDecoder(m mode, types strict.Types) *decoder {
	hooks := strict.Hooks{Unknown: unknown, Secret: secret.ResourceField, After: bounds, Strings: m.tags}
	d := &decoder{strict.New(m.lim, types, hooks), m}
	d.Placeholders = m.shown
	return d
}

// policyFields are the spec fields of a policy.
var policyFields = [...]string{"targetRef", "from", "to", "rules", "default"}

// unknown suggests the intended name or position of an unknown field.
func unknown(d *strict.Decoder, p *strict.Pair, names []string) string {
	switch {
	case d.AtTop() && slices.Contains(names, "spec") && slices.Contains(policyFields[:], p.Key):
		return "is in the wrong place: it belongs below spec"
	case d.AtTop() && p.Key == "spec" && len(d.Top) > 0:
		return "this kind has no spec: its fields are at the top level, next to type; they are " + strings.Join(names, ", ")
	}
	if why := laterField(d.Path()); why != "" {
		return why
	}
	reason := fmt.Sprintf("unknown field %s: it is not known in the schema of Kuma %s; ",
		strict.Quote(p.Key), SchemaVersion)
	if near := strict.Nearest(p.Key, names); near != "" {
		return reason + fmt.Sprintf("did you mean %q?", near)
	}
	return reason + "known here: " + strings.Join(names, ", ")
}

// laterField returns why nearside does not support a field of Kuma yet, and the alternative; "" for
// others.
func laterField(path string) string {
	if path == "networking.listeners" || path == "spec.networking.listeners" {
		return "zone proxies in a Dataplane are planned for " + LaterVersion + ": declare a ZoneIngress or a ZoneEgress, " +
			"which has its own address and port"
	}
	return ""
}

// decode decodes each document of a stream.
func (r *Registry) decode(file string, data []byte, m mode) ([]*Resource, Faults) {
	m.lim, m.tags = m.lim.WithDefaults(), r.tags
	out := stream{file: file}
	if r.sideBySide(&out, data, m) {
		return out.end()
	}
	out = stream{file: file}
	types := strict.Types{}
	strict.Stream(data, m.lim, func(doc strict.Document) bool {
		out.add(doc.Index, r.decoded(m, types, doc))
		return true
	})
	return out.end()
}

// decoded decodes one document of a stream.
func (r *Registry) decoded(m mode, types strict.Types, doc strict.Document) decodedDocument {
	switch {
	case doc.Fault != nil:
		return decodedDocument{unread: doc.Fault}
	case doc.Root == nil || doc.Root.Kind == strict.Null:
		return decodedDocument{}
	}
	d := newDecoder(m, types)
	res, id := r.document(d, doc.Root)
	return decodedDocument{res: res, id: id, faults: d.Finish()}
}

// decodedDocument is the result for one document.
type decodedDocument struct {
	unread *Fault // why the document is unreadable
	res    *Resource
	id     string // of the resource, for messages
	faults Faults
}

// maxStreamFaults limits the number of faults that one call returns.
const maxStreamFaults = 10_000

// stream collects the results for the documents of a file.
type stream struct {
	file    string
	out     []*Resource
	faults  Faults
	dropped int
}

// add adds the next document.
func (s *stream) add(index int, d decodedDocument) {
	if d.unread != nil {
		d.unread.File, d.unread.Document = s.file, index
		s.faults = append(s.faults, *d.unread)
		return
	}
	for i := range d.faults {
		d.faults[i].File, d.faults[i].Document, d.faults[i].Resource = s.file, index, d.id
	}
	kept := min(len(d.faults), max(0, maxStreamFaults-len(s.faults)))
	s.faults = append(s.faults, d.faults[:kept]...)
	s.dropped += len(d.faults) - kept
	if d.res != nil && len(d.faults) == 0 {
		s.out = append(s.out, d.res)
	}
}

func (s *stream) end() ([]*Resource, Faults) {
	if s.dropped > 0 {
		s.faults = append(s.faults, Fault{File: s.file, Reason: fmt.Sprintf("%d further faults are not shown", s.dropped)})
	}
	return withoutDeclarations(s.out), s.faults
}

// Seal validates a resource that the program built, computes its digest, and copies it. The result
// equals the one that Decode returns for its document.
func (r *Registry) Seal(res *Resource) (*Resource, Faults) {
	b, err := Marshal(res)
	if err != nil {
		return nil, Faults{{Resource: res.Key.String(), Reason: err.Error()}}
	}
	out, faults := r.Decode("", b)
	for i := range faults {
		faults[i].Document, faults[i].Line, faults[i].Resource = 0, 0, res.Key.String()
	}
	if len(faults) > 0 {
		return nil, faults
	}
	if len(out) != 1 {
		return nil, Faults{{Resource: res.Key.String(),
			Reason: fmt.Sprintf("the canonical form holds %d resources instead of one", len(out))}}
	}
	return out[0], nil
}

// document decodes one document. The resource is valid only if no fault was found. The second
// result is the name of the resource for messages.
func (r *Registry) document(d *decoder, root *strict.Node) (*Resource, string) {
	if root.Kind != strict.Mapping {
		d.Faultf(root.Line, "%s is not a resource: a mapping with type and name, or apiVersion, kind and metadata, "+
			"is expected",
			root.Show())
		return nil, ""
	}
	d.Check(root)
	h, ok := r.header(d, root)
	if !ok {
		return nil, ""
	}
	res := &Resource{Key: h.key, Labels: h.labels, Spec: h.desc.New()}
	id := h.id()
	if h.spec != nil {
		d.restore(h)
		for _, name := range h.specPath {
			d.Enter(name)
		}
		d.spec(h, res.Spec)
		for range h.specPath {
			d.Leave()
		}
	}
	if g, ok := res.Spec.(*HostnameGenerator); ok {
		g.Mesh = h.strayMesh
	}
	d.status(h, res.Spec)
	d.annotate(h, res.Spec)
	d.role(h, root, res.Spec)
	if !d.shown || h.spec == nil || !secret.CarriesMark(h.spec) {
		d.validate(h, root, res)
	}
	if len(d.Faults) > 0 {
		return nil, id
	}
	b, secrets, err := marshal(res, true)
	res.HasSecrets = secrets
	if err != nil {
		d.Faultf(root.Line, "%v", err)
	} else if len(b) > d.lim.DocumentBytes {
		d.Faultf(root.Line, "the resource has %d bytes of canonical JSON, more than the %d allowed",
			len(b), d.lim.DocumentBytes)
	}
	sum := sha256.Sum256(b)
	res.Digest = Digest(sum[:])
	return res, id
}

func (d *decoder) spec(h *header, spec Spec) {
	if h.spec.Kind == strict.Null {
		return
	}
	// Kinds with a spec do not allow null. Kinds with top-level fields are protobuf messages in
	// Kuma, and the Kubernetes API server removes nulls: both treat null as absent.
	d.NoNull = !h.desc.SpecAtTop && !h.kubernetes
	d.Decode(h.spec, spec)
	d.NoNull = false
}

// restore replaces marks by the secrets of the stored resource.
func (d *decoder) restore(h *header) {
	if d.stored == nil || !secret.CarriesMark(h.spec) {
		return
	}
	old := d.stored(h.key)
	if old == nil {
		return
	}
	shown, _, err := marshalSpec(old.Spec, false)
	if err != nil {
		return
	}
	if real, _, err := marshalSpec(old.Spec, true); err == nil {
		h.spec = secret.Restore(h.spec, shown, real)
	}
}

// status decodes the status of a service, which documents hold next to the spec.
func (d *decoder) status(h *header, spec Spec) {
	holder, ok := spec.(statusHolder)
	switch {
	case ok && h.status != nil && h.status.Kind != strict.Null:
		st := new(ServiceStatus)
		d.Enter("status")
		d.Decode(h.status, st)
		d.Leave()
		*holder.status() = st
	case !ok && h.status != nil && !h.kubernetes:
		d.Enter("status")
		d.Faultf(h.status.Line, "kind %s has no status; remove it", h.desc.Kind)
		d.Leave()
	}
}

// validate runs the checks of the spec. It reports no second fault for a field that could not be
// decoded and is therefore empty.
func (d *decoder) validate(h *header, root *strict.Node, res *Resource) {
	var found []Fault
	v := NewValidator(strings.Join(h.specPath, "."), &found)
	res.Spec.Validate(v)
	if p, ok := res.Spec.(*Policy); ok {
		p.validateLabels(v, res.Labels)
	}
	validateLabels(NewValidator(h.labelPath, &found), h.desc, res.Labels)
	decoded := d.Faults
	for _, f := range found {
		if rest, ok := strings.CutPrefix(f.Field, "spec.status"); ok {
			f.Field = "status" + rest
		}
		if slices.ContainsFunc(decoded, func(g Fault) bool {
			// a Dataplane whose listeners are refused has no inbounds
			return strict.Within(f.Field, g.Field) || laterField(g.Field) != "" && f.Field+".listeners" == g.Field
		}) {
			continue
		}
		f.Line = root.LineOf(f.Field)
		d.Add(f)
	}
}
