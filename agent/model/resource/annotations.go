package resource

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/redirect"
)

// Annotations that restrict which services a proxy may reach.
const (
	AnnotationReachableBackends = "kuma.io/reachable-backends"
	AnnotationReachableServices = "kuma.io/transparent-proxying-reachable-services"
)

// Limits for one annotation.
const (
	maxAnnotation       = 64 << 10
	maxAnnotationNodes  = 20_000 // values, with expanded aliases
	maxAnnotationDepth  = 16
	maxAnnotationFaults = 20
)

// Reach holds the reachability and the probes set by annotations, in the form of the fields of
// TransparentProxying. A nil field means that no annotation sets it.
type Reach struct {
	Services []string
	Backends *ReachableBackends
	Probes   map[uint32]string // paths of HTTP probes, by the port of the inbound
	// Notes describe references that match nothing, each with its field path.
	Notes []string

	path string // field path of the annotations
}

// IsZero reports whether no annotation sets a value.
func (r *Reach) IsZero() bool { return r.Services == nil && r.Backends == nil && r.Probes == nil }

// ParseReach parses the annotations for reachability and probes, and ignores all others. path is
// their field path, such as "metadata.annotations". An invalid annotation has no effect; the other
// one still applies. A reference to a kind that is not a service is dropped with a note.
func ParseReach(path string, annotations map[string]string) (Reach, Faults) {
	out := Reach{path: path}
	var faults Faults
	if text, ok := annotations[AnnotationReachableServices]; ok {
		v := NewValidator(path, (*[]Fault)(&faults)).Key(AnnotationReachableServices)
		out.Services = parseServiceList(v, text)
	}
	if text, ok := annotations[AnnotationReachableBackends]; ok {
		var found Faults
		out.Backends, out.Notes, found = parseBackends(NewValidator(path, nil).Key(AnnotationReachableBackends).path, text)
		faults = append(faults, found...)
	}
	var fault string
	if out.Probes, fault = parseHTTPProbes(annotations[AnnotationHTTPProbes]); fault != "" {
		NewValidator(path, (*[]Fault)(&faults)).Key(AnnotationHTTPProbes).Faultf("%s", fault)
	}
	return out, faults
}

// parseServiceList parses comma-separated names. It returns nil if there is a fault.
func parseServiceList(v *Validator, text string) []string {
	switch {
	case len(text) > maxAnnotation:
		v.Faultf("it has %d bytes; at most %d are allowed", len(text), maxAnnotation)
		return nil
	case strings.TrimSpace(text) == "":
		v.Faultf("the value is empty: list services separated by commas; without the annotation, all are reachable")
		return nil
	}
	var faults []Fault
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	serviceNames(NewValidator(v.path, &faults), list)
	if len(faults) > 0 {
		*v.sink = append(*v.sink, bounded(faults)...)
		return nil
	}
	return list
}

// parseBackends parses the YAML of refs. It returns nil if there is a fault.
func parseBackends(path, text string) (*ReachableBackends, []string, Faults) {
	var faults Faults
	v := NewValidator(path, (*[]Fault)(&faults))
	if len(text) > maxAnnotation {
		v.Faultf("it has %d bytes; at most %d are allowed", len(text), maxAnnotation)
		return nil, nil, faults
	}
	lim := Limits{Depth: maxAnnotationDepth, Nodes: maxAnnotationNodes * strict.DocumentShare}.WithDefaults()
	root, err := strict.One([]byte(text), lim)
	switch {
	case err != nil:
		v.Faultf("line %d of its value: %s", max(1, err.Line), err.Reason)
		return nil, nil, faults
	case root == nil || root.Kind == strict.Null || root.Kind == strict.Mapping && root.Get("refs") == nil &&
		len(root.Pairs) == 0:
		v.Faultf("the value is empty: list reachable services in refs, as in {refs: [{kind: MeshService, name: backend}]}; " +
			"refs: [] makes no service reachable, and without the annotation all are reachable")
		return nil, nil, faults
	}
	out := new(ReachableBackends)
	d := newDecoder(mode{lim: lim}, strict.Types{})
	d.Check(root)
	d.Decode(root, out)
	for _, f := range d.Faults {
		f.Field, f.Line = joined(path, f.Field), 0 // a line within the annotation, not within the document
		faults = append(faults, f)
	}
	if len(faults) > 0 {
		return nil, nil, bounded(faults)
	}
	if n := root.Get("refs"); n == nil || n.Kind == strict.Null {
		v.Field("refs").Faultf("the list is missing: refs: [] makes nothing reachable")
		return nil, nil, faults
	}
	var notes []string
	refs := out.Refs
	out.Refs = refs[:0]
	for i := range refs {
		ref, at := refs[i], v.Field("refs").Index(i)
		if ref.Kind == "" || slices.Contains(backendKinds[:], ref.Kind) {
			ref.validate(at)
			out.Refs = append(out.Refs, ref)
		} else if len(notes) < maxAnnotationFaults {
			notes = append(notes, fmt.Sprintf("%s.kind: %s", at.path, unknownBackendKind(ref.Kind)))
		}
	}
	if len(faults) > 0 {
		return nil, nil, bounded(faults)
	}
	return out, notes, nil
}

func unknownBackendKind(kind string) string {
	out := fmt.Sprintf("%s is not a kind of service, so the reference matches nothing: use one of %s",
		strict.Quote(kind), strings.Join(backendKinds[:], ", "))
	if near := strict.Nearest(kind, backendKinds[:]); near != "" {
		out += fmt.Sprintf("; did you mean %q?", near)
	}
	return out
}

// joined appends one field path to another.
func joined(path, field string) string {
	if field == "" || field[0] == '[' {
		return path + field
	}
	return path + "." + field
}

func bounded(faults []Fault) []Fault {
	if more := len(faults) - maxAnnotationFaults; more > 0 {
		faults = append(faults[:maxAnnotationFaults:maxAnnotationFaults],
			Fault{Field: faults[0].Field, Reason: fmt.Sprintf("and %d further faults", more)})
	}
	return faults
}

// Restrict returns the dataplane with the reachability of annotations in its fields, or r itself if
// there is none. An existing field takes precedence, and [Dataplane.Notes] records an annotation
// that contradicts it.
func (a *Reach) Restrict(r *Resource) *Resource {
	dp, ok := r.Spec.(*Dataplane)
	if !ok || a.IsZero() && len(a.Notes) == 0 {
		return r
	}
	out, spec := *r, *dp
	spec.Notes = slices.Clip(dp.Notes)
	out.Spec = &spec
	a.into(&spec)
	if b, err := Marshal(&out); err == nil {
		sum := sha256.Sum256(b)
		out.Digest = Digest(sum[:])
	}
	return &out
}

// into sets the fields of a dataplane. It copies the dataplane's transparent proxying first.
func (a *Reach) into(dp *Dataplane) {
	dp.Notes = append(dp.Notes, a.Notes...)
	if a.Probes != nil {
		dp.setHTTPProbes(a.Probes)
	}
	note := func(said bool, annotation, reason string) {
		if said {
			dp.Notes = append(dp.Notes, fmt.Sprintf("%s[%q]: without effect: %s", a.path, annotation, reason))
		}
	}
	if dp.Networking.TransparentProxying == nil {
		const none = "the dataplane has no networking.transparentProxying and reaches only the outbounds that it lists"
		note(a.Backends != nil, AnnotationReachableBackends, none)
		note(a.Services != nil, AnnotationReachableServices, none)
		return
	}
	tp := *dp.Networking.TransparentProxying
	dp.Networking.TransparentProxying = &tp
	const overruled = "networking.transparentProxying.%s takes precedence; remove the annotation"
	if tp.ReachableBackends == nil {
		tp.ReachableBackends = a.Backends
	} else {
		note(a.Backends != nil && !reflect.DeepEqual(tp.ReachableBackends.Refs, a.Backends.Refs), AnnotationReachableBackends,
			fmt.Sprintf(overruled, "reachableBackends"))
	}
	if len(tp.ReachableServices) == 0 {
		tp.ReachableServices = a.Services
	} else {
		note(a.Services != nil && !slices.Equal(tp.ReachableServices, a.Services), AnnotationReachableServices,
			fmt.Sprintf(overruled, "reachableServices"))
	}
}

// annotate applies the annotations of a Kubernetes document to its dataplane.
func (d *decoder) annotate(h *header, spec Spec) {
	dp, ok := spec.(*Dataplane)
	if !ok || h.annotations == nil {
		return
	}
	reach, faults := ParseReach("metadata.annotations", h.annotations)
	for _, f := range faults {
		f.Line = h.annotationsAt
		d.Add(f)
	}
	if len(faults) == 0 && (!reach.IsZero() || len(reach.Notes) > 0) {
		reach.into(dp)
	}
	if tp := dp.Networking.TransparentProxying; tp != nil && h.labels[redirect.Label] != "" {
		options, notes, faults := redirect.Annotate("metadata.annotations", tp.Redirect, h.annotations)
		tp.Redirect, dp.Notes = options, append(dp.Notes, notes...)
		if tp.IPFamilyMode == "" {
			tp.IPFamilyMode = redirect.Families(h.annotations)
		}
		for _, f := range faults {
			d.Add(Fault{Field: f.Name, Line: h.annotationsAt, Reason: f.Reason})
		}
	}
}
