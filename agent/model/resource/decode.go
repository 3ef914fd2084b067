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

// SchemaVersion is the newest version of Kuma whose documents are known: their fields, and what
// these mean.
const SchemaVersion = "2.13"

// Decode reads a stream of YAML or JSON documents in the universal or the Kubernetes format, within
// the default limits. It returns every good document, and every fault of the others; a document
// with a fault yields no resource. File stands in the faults and is not opened. Empty documents are
// skipped and not counted.
func (r *Registry) Decode(file string, data []byte) ([]*Resource, Faults) {
	return r.DecodeLimits(file, data, Limits{})
}

// DecodeOne decodes a text that must hold exactly one resource.
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

// DecodeLimits is Decode within other limits.
func (r *Registry) DecodeLimits(file string, data []byte, lim Limits) ([]*Resource, Faults) {
	return r.decode(file, data, mode{lim: lim})
}

// DecodeShown is Decode for documents that an agent has shown, or that are for one:
// [secret.Redacted] in the place of a secret is no fault. A document that holds it is not
// validated: the agent that has the secret does that.
func (r *Registry) DecodeShown(file string, data []byte) ([]*Resource, Faults) {
	return r.decode(file, data, mode{shown: bytes.Contains(data, []byte(secret.Redacted))})
}

// DecodeOver is Decode for documents that may have been read from the agent and go back to it:
// where [secret.Redacted] stands for a secret of the resource that stored returns, that secret
// takes its place. Stored is asked for the resources of documents that hold a mark, and returns nil
// for those that do not exist.
func (r *Registry) DecodeOver(data []byte, stored func(Key) *Resource) ([]*Resource, Faults) {
	if !bytes.Contains(data, []byte(secret.Redacted)) {
		stored = nil
	}
	return r.decode("", data, mode{stored: stored})
}

// mode says how the documents of a stream are decoded.
type mode struct {
	lim Limits
	// whose secrets marks stand for; nil: marks stand for nothing
	stored func(Key) *Resource
	shown  bool                                                   // marks stay, for an agent to replace
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

// policyFields are those of the spec of a policy.
var policyFields = [...]string{"targetRef", "from", "to", "rules", "default"}

// unknown says of a field that does not exist which name or which place was likely meant.
func unknown(d *strict.Decoder, p *strict.Pair, names []string) string {
	switch {
	case d.AtTop() && slices.Contains(names, "spec") && slices.Contains(policyFields[:], p.Key):
		return "is in the wrong place: it stands below spec"
	case d.AtTop() && p.Key == "spec" && len(d.Top) > 0:
		return "this kind has no spec: its fields stand at the top, beside type; these are " + strings.Join(names, ", ")
	}
	reason := fmt.Sprintf("unknown field %s: it is not known in the schema of Kuma %s; ",
		strict.Quote(p.Key), SchemaVersion)
	if near := strict.Nearest(p.Key, names); near != "" {
		return reason + fmt.Sprintf("did you mean %q?", near)
	}
	return reason + "known here: " + strings.Join(names, ", ")
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

// decodedDocument is what became of one document.
type decodedDocument struct {
	unread *Fault // why there is none
	res    *Resource
	id     string // of the resource, for messages
	faults Faults
}

// maxStreamFaults bounds what one call reports.
const maxStreamFaults = 10_000

// stream is what became of the documents of a file.
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
	return s.out, s.faults
}

// Seal makes a valid, immutable resource of parts made by the program: it validates, gives the
// digest and copies, so that the result is the one that Decode would have returned.
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

// document decodes one document. The resource counts only when no fault was found. The second
// result is the name of the resource for messages.
func (r *Registry) document(d *decoder, root *strict.Node) (*Resource, string) {
	if root.Kind != strict.Mapping {
		d.Faultf(root.Line, "%s is not a resource: a mapping with type and name, or apiVersion, kind and metadata, is wanted",
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
	d.status(h, res.Spec)
	d.annotate(h, res.Spec)
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
	// The schemas of kinds with a spec know no null. Kinds whose fields stand beside the type are
	// messages of protobuf in Kuma, and of what is in the form of Kubernetes its API server takes
	// nulls away: both take null for what is not given.
	d.NoNull = !h.desc.SpecAtTop && !h.kubernetes
	d.Decode(h.spec, spec)
	d.NoNull = false
}

// restore puts the secrets of the stored resource in the places of their marks.
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

// status decodes the status of a service, which stands beside the spec.
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

// validate runs the checks of the spec. A value that could not be decoded has its fault already;
// that its place now looks empty is not a second one.
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
		if slices.ContainsFunc(decoded, func(g Fault) bool { return strict.Within(f.Field, g.Field) }) {
			continue
		}
		f.Line = root.LineOf(f.Field)
		d.Add(f)
	}
}
