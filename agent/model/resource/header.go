package resource

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// APIVersion is the version of Kuma's Kubernetes format.
const APIVersion = "kuma.io/v1alpha1"

// header holds the fields around the spec of a document, in either format.
type header struct {
	desc       Descriptor
	key        Key
	labels     map[string]string
	labelPath  string
	kubernetes bool
	spec       *strict.Node // nil if there is none
	specPath   []string
	status     *strict.Node

	strayMesh string // the mesh of a HostnameGenerator, which belongs to none

	annotations   map[string]string // only in the Kubernetes format
	annotationsAt int               // their line
}

// id returns the resource's name for messages. It quotes an invalid name, which may contain any
// text.
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

// Fields next to the spec. Control planes write the ignored ones; they express no intent.
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

// header decodes the fields around the spec. It returns false if the kind is unknown, so that the
// rest cannot be decoded.
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
		d.fault(root, "kind", "belongs to the Kubernetes format, which also needs apiVersion and metadata; "+
			"in the universal format, type names the kind: write %q", "type: "+decodeField[string](d, root, "kind"))
		return nil, false
	case kubernetes:
		return r.kubernetes(d, root)
	}
	d.Faultf(root.Line,
		"neither the universal format (type and name) nor the Kubernetes format (apiVersion, kind and metadata)")
	return nil, false
}

// kind returns the descriptor of the kind in a field.
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
	case name == "" && len(d.Faults) > 0 && d.Faults[len(d.Faults)-1].Field == field: // the wrong type is already reported
	case name == "":
		d.fault(root, field, "the kind is missing; give one of %s", strings.Join(kinds, ", "))
	case near != "":
		d.fault(root, field, "unknown kind %s; did you mean %q?", strict.Quote(name), near)
	default:
		d.fault(root, field, "unknown kind %s; nearside api-resources lists all kinds", strict.Quote(name))
	}
	return desc, false
}

// notServed returns the alternative to a kind of Kuma that nearside does not support, or "".
func notServed(kind string) string {
	switch kind {
	case "Secret", "GlobalSecret":
		return "certificates and keys are data sources (file, inline, or inlineString) of the resource that uses them, " +
			"and nearside token creates tokens"
	case "Zone":
		return "node.zone in the agent's config sets the zone of a node"
	case "MeshGateway", "MeshGatewayRoute", "MeshGatewayConfig", "MeshGatewayInstance":
		return "nearside has no builtin gateways; a delegated gateway is a Dataplane with networking.gateway"
	case "MeshIdentity":
		return "workload identities are planned for " + LaterVersion + ". Until then, certificates come from mtls of the " +
			"Mesh: enable a backend there, because without one the traffic is not encrypted and permissions do not act"
	case "MeshTrust":
		return "it belongs to MeshIdentity, which is planned for " + LaterVersion + ". Until then, a backend of type " +
			"provided in mtls of the Mesh holds a CA"
	case "MeshZoneAddress":
		return "zone proxies in a Dataplane are planned for " + LaterVersion + ". Until then, a ZoneIngress has the " +
			"public address of its zone in networking.advertisedAddress"
	case "DataplaneInsight", "MeshInsight", "ServiceInsight", "ZoneInsight", "ZoneIngressInsight", "ZoneEgressInsight":
		return "a control plane writes it, and the agent reports its own observations; remove it"
	case "ContainerPatch":
		return "nearside injects nothing into pods; remove it"
	case KindEndpointState:
		return "agents write it; remove it, and use nearside drain or networking.inbound[].state to take endpoints out of use"
	case "MeshOPA", "OPAPolicy", "MeshGlobalRateLimit", "AccessRole", "AccessRoleBinding", "AccessAudit":
		return "it belongs to Kong Mesh; remove it"
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
	d.meshName(root, h)
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

// body returns the node that holds the spec's fields in a universal document with a top-level spec.
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
	if v := decodeField[string](d, root, "apiVersion"); v != APIVersion {
		d.fault(root, "apiVersion", "%s is not %s, the version of all kinds", strict.Quote(v), APIVersion)
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
		d.meshName(meta, &header{desc: desc, key: Key{Name: name}})
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

// mesh decodes and checks the mesh of the key: from the field, or from the label that newer
// Kubernetes kinds use. The label becomes part of the key, so that both formats yield the same
// resource.
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
	case h.desc.Scope == ScopeGlobal && h.desc.Kind == kindHostnameGenerator: // as in Kuma; the view warns about it
		h.strayMesh = value
	case h.desc.Scope == ScopeGlobal && value != "":
		d.fault(root, at, "kind %s belongs to no mesh, %s is given; remove it", h.desc.Kind, strict.Quote(value))
	case h.desc.Scope == ScopeGlobal:
	case value == "":
		h.key.Mesh = DefaultMesh
	default:
		h.key.Mesh = value
		if reason := meshNameFault(value); reason != "" {
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

// meshName checks the name of a Mesh.
func (d *decoder) meshName(n *strict.Node, h *header) {
	if h.desc.Kind != "Mesh" || nameFault(h.key.Name) != "" { // reported by name
		return
	}
	if reason := meshNameFault(h.key.Name); reason != "" {
		d.fault(n, "name", "%s", reason)
	}
}

// name checks the name of a resource.
func (d *decoder) name(n *strict.Node, name, field string) {
	v := n.Get(field)
	if v != nil && v.Kind != strict.String && v.Kind != strict.Null {
		return // already reported as a wrong type
	}
	if reason := nameFault(name); reason != "" {
		d.fault(n, field, "%s", reason)
	}
}
