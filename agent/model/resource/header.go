package resource

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// apiVersion of Kuma's Kubernetes format.
const apiVersion = "kuma.io/v1alpha1"

// header is what stands around the spec of a document, in either format.
type header struct {
	desc       Descriptor
	key        Key
	labels     map[string]string
	labelPath  string
	kubernetes bool
	spec       *strict.Node // nil when there is none
	specPath   []string
	status     *strict.Node

	annotations   map[string]string // of the Kubernetes format
	annotationsAt int               // their line
}

// id names the resource in messages; a name that is not one is quoted, as it may hold anything.
func (h *header) id() string {
	k := h.key
	if k.Name == "" {
		return k.Kind
	}
	if nameFault(k.Name) != "" || k.Mesh != "" && nameFault(k.Mesh) != "" {
		return k.Kind + " " + strict.Quote(k.Name)
	}
	return k.String()
}

// Fields beside the spec. The ignored ones are written by control planes and say nothing about what
// is wanted.
var (
	universalFields  = [...]string{"type", "mesh", "name", "labels"}
	universalIgnored = [...]string{"creationTime", "modificationTime", "kri"}
	kubernetesFields = [...]string{"apiVersion", "kind", "metadata", "mesh", "spec", "status"}
	metadataFields   = [...]string{"name", "namespace", "labels", "annotations"}
	metadataIgnored  = [...]string{
		"creationTimestamp", "resourceVersion", "uid", "generation", "managedFields", "ownerReferences", "finalizers",
		"selfLink", "generateName", "deletionTimestamp", "deletionGracePeriodSeconds",
	}
)

// header reads the fields around the spec; false when the kind is not known, so that the rest has
// no meaning.
func (r *Registry) header(d *decoder, root *strict.Node) (*header, bool) {
	universal := root.Get("type") != nil
	kubernetes := root.Get("apiVersion") != nil || root.Get("kind") != nil
	switch {
	case universal && kubernetes:
		d.Faultf(root.Line, "both type (universal format) and apiVersion or kind (Kubernetes format) are given; keep one")
		return nil, false
	case universal:
		return r.universal(d, root)
	case kubernetes && root.Get("apiVersion") == nil && root.Get("metadata") == nil:
		d.fault(root, "kind", "is of the Kubernetes format, which has apiVersion and metadata too; "+
			"in the universal format the kind stands in type: write %q", "type: "+decodeField[string](d, root, "kind"))
		return nil, false
	case kubernetes:
		return r.kubernetes(d, root)
	}
	d.Faultf(root.Line,
		"neither the universal format (type and name) nor the Kubernetes format (apiVersion, kind and metadata)")
	return nil, false
}

// kind finds the descriptor that the field names.
func (r *Registry) kind(d *decoder, root *strict.Node, field string) (Descriptor, bool) {
	name := decodeField[string](d, root, field)
	desc, ok := r.Lookup(name)
	if ok && desc.Kind == name {
		return desc, true
	}
	if ok {
		d.fault(root, field, "unknown kind %s; did you mean %q?", strict.Quote(name), desc.Kind)
		return desc, false
	}
	kinds := make([]string, 0, len(r.list))
	for _, x := range r.list {
		kinds = append(kinds, x.Kind)
	}
	switch near := strict.Nearest(name, kinds); {
	case notServed(name) != "":
		d.fault(root, field, "kind %s is not served: %s", strict.Quote(name), notServed(name))
	case name == "" && len(d.Faults) > 0 && d.Faults[len(d.Faults)-1].Field == field: // the wrong type is reported
	case name == "":
		d.fault(root, field, "the kind is missing; give one of %s", strings.Join(kinds, ", "))
	case near != "":
		d.fault(root, field, "unknown kind %s; did you mean %q?", strict.Quote(name), near)
	default:
		d.fault(root, field, "unknown kind %s; nearside api-resources lists those that there are", strict.Quote(name))
	}
	return desc, false
}

// notServed says of a kind of Kuma that is none here what there is instead; "" of all others.
func notServed(kind string) string {
	switch kind {
	case "Secret", "GlobalSecret":
		return "certificates and keys stand in data sources (file, inline or inlineString) of what uses them, " +
			"and tokens are made by nearside token"
	case "Zone":
		return "the zone of a node is node.zone of its agent's config"
	case "MeshGateway", "MeshGatewayRoute", "MeshGatewayConfig", "MeshGatewayInstance":
		return "there are no builtin gateways; a delegated one is a Dataplane with networking.gateway"
	case "MeshIdentity", "MeshTrust":
		return "the authorities of a mesh are the backends in mtls of its Mesh"
	case "DataplaneInsight", "MeshInsight", "ServiceInsight", "ZoneInsight", "ZoneIngressInsight", "ZoneEgressInsight":
		return "it holds what a control plane has seen, and the agent answers with what it sees itself; leave it out"
	case "ContainerPatch":
		return "nothing is injected into pods; leave it out"
	case "MeshOPA", "OPAPolicy", "MeshGlobalRateLimit", "AccessRole", "AccessRoleBinding", "AccessAudit":
		return "it is one of Kong Mesh; leave it out"
	}
	return ""
}

// decodeField decodes one field, which may be absent.
func decodeField[T any](d *decoder, n *strict.Node, field string) (out T) {
	if v := n.Get(field); v != nil {
		d.Enter(field)
		d.Decode(v, &out)
		d.Leave()
	}
	return out
}

// onlyKnown reports the fields of a mapping that are neither known nor ignored.
func (d *decoder) onlyKnown(n *strict.Node, known, ignored []string) {
	for i := range n.Pairs {
		if p := &n.Pairs[i]; !slices.Contains(known, p.Key) && !slices.Contains(ignored, p.Key) {
			d.OnlyKnown(p, known)
		}
	}
}

func (r *Registry) universal(d *decoder, root *strict.Node) (*header, bool) {
	desc, ok := r.kind(d, root, "type")
	if !ok {
		return nil, false
	}
	h := &header{desc: desc, labelPath: "labels", labels: decodeField[map[string]string](d, root, "labels")}
	h.key = Key{Kind: desc.Kind, Name: decodeField[string](d, root, "name")}
	d.mesh(root, h)
	d.name(root, h.key.Name, "name")
	if desc.SpecAtTop {
		d.Top = universalFields[:]
		h.spec = body(root)
		return h, true
	}
	h.spec, h.status, h.specPath = root.Get("spec"), root.Get("status"), []string{"spec"}
	d.onlyKnown(root, append(universalFields[:], "spec"), append(universalIgnored[:], "status"))
	d.specRequired(root, h)
	return h, true
}

// body returns the part of a universal document that is the spec where the fields stand at the top.
func body(root *strict.Node) *strict.Node {
	n := *root
	n.Pairs = slices.DeleteFunc(slices.Clone(root.Pairs), func(p strict.Pair) bool {
		return slices.Contains(universalFields[:], p.Key) || slices.Contains(universalIgnored[:], p.Key)
	})
	return &n
}

func (d *decoder) specRequired(root *strict.Node, h *header) {
	if h.spec == nil || h.spec.Kind == strict.Null {
		d.fault(root, "spec", "the spec is missing; kind %s needs one", h.desc.Kind)
	}
}

func (r *Registry) kubernetes(d *decoder, root *strict.Node) (*header, bool) {
	if v := decodeField[string](d, root, "apiVersion"); v != apiVersion {
		d.fault(root, "apiVersion", "%s is not %s, the version of all kinds", strict.Quote(v), apiVersion)
	}
	desc, ok := r.kind(d, root, "kind")
	if !ok {
		return nil, false
	}
	h := &header{desc: desc, kubernetes: true, labelPath: "metadata.labels", spec: root.Get("spec"),
		status: root.Get("status"), specPath: []string{"spec"}}
	d.onlyKnown(root, kubernetesFields[:], nil)
	if !desc.SpecAtTop {
		d.specRequired(root, h)
	}
	meta := root.Get("metadata")
	d.Enter("metadata")
	namespace, name := "", ""
	switch {
	case meta == nil || meta.Kind == strict.Null:
		d.Faultf(root.Line, "the metadata is missing; give at least a name")
	case meta.Kind != strict.Mapping:
		d.WrongType(meta, "a mapping")
	default:
		d.onlyKnown(meta, metadataFields[:], metadataIgnored[:])
		namespace, name = decodeField[string](d, meta, "namespace"), decodeField[string](d, meta, "name")
		d.name(meta, name, "name")
		if namespace != "" {
			d.name(meta, namespace, "namespace")
		}
		h.labels = decodeField[map[string]string](d, meta, "labels")
		h.annotations, h.annotationsAt = decodeField[map[string]string](d, meta, "annotations"), meta.LineOf("annotations")
	}
	d.Leave()
	h.key = Key{Kind: desc.Kind, Name: name}
	d.mesh(root, h)
	if namespace != "" && nameFault(namespace) == "" {
		h.key.Name = name + "." + namespace
		if h.labels == nil {
			h.labels = map[string]string{}
		}
		h.labels[LabelNamespace] = namespace
		if h.labels[LabelDisplayName] == "" {
			h.labels[LabelDisplayName] = name
		}
	}
	return h, true
}

// mesh completes and checks the mesh of the key: from the field, or from the label that newer
// Kubernetes kinds use. The label goes into the key, so that both formats give the same resource.
func (d *decoder) mesh(root *strict.Node, h *header) {
	at, value := "mesh", decodeField[string](d, root, "mesh")
	if label, ok := h.labels[LabelMesh]; ok {
		delete(h.labels, LabelMesh)
		if len(h.labels) == 0 {
			h.labels = nil
		}
		switch {
		case value == "":
			at, value = fmt.Sprintf("%s[%q]", h.labelPath, LabelMesh), label
		case value != label:
			d.fault(root, at, "the mesh %s and the label %s: %s differ; keep one",
				strict.Quote(value), LabelMesh, strict.Quote(label))
		}
	}
	switch {
	case h.desc.Scope == ScopeGlobal && value != "":
		d.fault(root, at, "kind %s belongs to no mesh, %s is given; remove it", h.desc.Kind, strict.Quote(value))
	case h.desc.Scope == ScopeGlobal:
	case value == "":
		h.key.Mesh = DefaultMesh
	default:
		h.key.Mesh = value
		if reason := nameFault(value); reason != "" {
			d.fault(root, at, "%s", reason)
		}
	}
}

// fault reports a fault at a path below a node, which is the value being decoded.
func (d *decoder) fault(n *strict.Node, path, format string, args ...any) {
	d.Enter(path)
	d.Faultf(n.LineOf(path), format, args...)
	d.Leave()
}

// name checks the name of a resource.
func (d *decoder) name(n *strict.Node, name, field string) {
	v := n.Get(field)
	if v != nil && v.Kind != strict.String && v.Kind != strict.Null {
		return // reported as a wrong type
	}
	if reason := nameFault(name); reason != "" {
		d.fault(n, field, "%s", reason)
	}
}
