package resource

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
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
	return r.decode(file, data, &decoder{lim: lim})
}

// DecodeShown is Decode for documents that an agent has shown, or that are for one: [Redacted] in
// the place of a secret is no fault. A document that holds it is not validated: the agent that has
// the secret does that.
func (r *Registry) DecodeShown(file string, data []byte) ([]*Resource, Faults) {
	return r.decode(file, data, &decoder{shown: bytes.Contains(data, []byte(Redacted))})
}

// DecodeOver is Decode for documents that may have been read from the agent and go back to it:
// where [Redacted] stands for a secret of the resource that stored returns, that secret takes its
// place. Stored is asked for the resources of documents that hold a mark, and returns nil for those
// that do not exist.
func (r *Registry) DecodeOver(data []byte, stored func(Key) *Resource) ([]*Resource, Faults) {
	if !bytes.Contains(data, []byte(Redacted)) {
		stored = nil
	}
	return r.decode("", data, &decoder{stored: stored})
}

// decode decodes each document as the decoder says.
func (r *Registry) decode(file string, data []byte, like *decoder) ([]*Resource, Faults) {
	like.lim = like.lim.withDefaults()
	out := stream{file: file}
	if r.sideBySide(&out, data, like) {
		return out.end()
	}
	out = stream{file: file}
	types := map[reflect.Type]*typeInfo{}
	parseStream(data, like.lim, func(doc document) bool {
		out.add(doc.index, r.decoded(like, types, doc))
		return true
	})
	return out.end()
}

// decoded decodes one document of a stream.
func (r *Registry) decoded(like *decoder, types map[reflect.Type]*typeInfo, doc document) decodedDocument {
	switch {
	case doc.err != nil:
		return decodedDocument{unread: doc.err}
	case doc.root == nil || doc.root.kind == nodeNull:
		return decodedDocument{}
	}
	d := &decoder{lim: like.lim, types: types, stored: like.stored, shown: like.shown, sharer: r.sharer}
	res, id := r.document(d, doc.root)
	if d.more > 0 {
		d.faults = append(d.faults, Fault{Line: d.faults[len(d.faults)-1].Line,
			Reason: fmt.Sprintf("%d further faults of this document are not shown", d.more)})
	}
	slices.SortStableFunc(d.faults, func(a, b Fault) int { return a.Line - b.Line })
	return decodedDocument{res: res, id: id, faults: d.faults}
}

// decodedDocument is what became of one document.
type decodedDocument struct {
	unread *Fault // why there is none
	res    *Resource
	id     string // of the resource, for messages
	faults Faults
}

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
	keep := min(len(d.faults), max(0, maxStreamFaults-len(s.faults)))
	s.faults = append(s.faults, d.faults[:keep]...)
	s.dropped += len(d.faults) - keep
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
func (r *Registry) document(d *decoder, root *node) (*Resource, string) {
	if root.kind != nodeMapping {
		d.faultf(root.line, "%s is not a resource: a mapping with type and name, or apiVersion, kind and metadata, is wanted",
			root.show())
		return nil, ""
	}
	d.check(root, 1)
	h, ok := r.header(d, root)
	if !ok {
		return nil, ""
	}
	res := &Resource{Key: h.key, Labels: h.labels, Spec: h.desc.New()}
	id := h.id()
	if h.spec != nil {
		d.restore(h)
		for _, name := range h.specPath {
			d.field(name)
		}
		d.spec(h, res.Spec)
		d.path = d.path[:0]
	}
	d.status(h, res.Spec)
	d.annotate(h, res.Spec)
	if !d.shown || h.spec == nil || !carriesMark(h.spec) {
		d.validate(h, root, res)
	}
	if len(d.faults) > 0 {
		return nil, id
	}
	b, secrets, err := marshal(res, true)
	res.HasSecrets = secrets
	if err != nil {
		d.faultf(root.line, "%v", err)
	} else if len(b) > d.lim.DocumentBytes {
		d.faultf(root.line, "the resource has %d bytes of canonical JSON, more than the %d allowed",
			len(b), d.lim.DocumentBytes)
	}
	sum := sha256.Sum256(b)
	res.Digest = Digest(sum[:])
	return res, id
}

func (d *decoder) spec(h *header, spec Spec) {
	v := reflect.ValueOf(spec)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		d.faultf(h.spec.line, "kind %s cannot be decoded: its spec is not a pointer", h.desc.Kind)
		return
	}
	if h.spec.kind == nodeNull {
		return
	}
	// The schemas of kinds with a spec know no null. Kinds whose fields stand beside the type are
	// messages of protobuf in Kuma, and of what is in the form of Kubernetes its API server takes
	// nulls away: both take null for what is not given.
	d.noNull = !h.desc.SpecAtTop && !h.kubernetes
	d.value(h.spec, v.Elem())
	d.noNull = false
}

// status decodes the status of a service, which stands beside the spec.
func (d *decoder) status(h *header, spec Spec) {
	holder, ok := spec.(statusHolder)
	switch {
	case ok && h.status != nil && h.status.kind != nodeNull:
		st := new(ServiceStatus)
		d.field("status")
		d.value(h.status, reflect.ValueOf(st).Elem())
		d.pop()
		*holder.status() = st
	case !ok && h.status != nil && !h.kubernetes:
		d.field("status")
		d.faultf(h.status.line, "kind %s has no status; remove it", h.desc.Kind)
		d.pop()
	}
}

// validate runs the checks of the spec. A value that could not be decoded has its fault already;
// that its place now looks empty is not a second one.
func (d *decoder) validate(h *header, root *node, res *Resource) {
	var found []Fault
	v := NewValidator(strings.Join(h.specPath, "."), &found)
	res.Spec.Validate(v)
	if p, ok := res.Spec.(*Policy); ok {
		p.validateLabels(v, res.Labels)
	}
	validateLabels(NewValidator(h.labelPath, &found), h.desc, res.Labels)
	decoded := d.faults
	for _, f := range found {
		if rest, ok := strings.CutPrefix(f.Field, "spec.status"); ok {
			f.Field = "status" + rest
		}
		if d.full() {
			continue
		}
		if slices.ContainsFunc(decoded, func(g Fault) bool { return within(f.Field, g.Field) }) {
			continue
		}
		f.Line = root.lineOf(f.Field)
		d.faults = append(d.faults, f)
	}
}

// within reports whether a field path is another one or lies below it.
func within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && of != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
