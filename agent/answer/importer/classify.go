package importer

import (
	"bytes"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const (
	kindMesh         = "Mesh"
	kindMeshService  = "MeshService"
	kindSecret       = "Secret"
	kindGlobalSecret = "GlobalSecret"
)

// unneeded are kinds without an effect on proxies, with the reason to leave them out. Without a
// reason, the decoder gives one.
var unneeded = map[string]string{
	"DataplaneInsight": "", "MeshInsight": "", "ServiceInsight": "", "ZoneInsight": "",
	"ZoneIngressInsight": "", "ZoneEgressInsight": "", "ContainerPatch": "",
	"Zone":              "",
	"AccessRole":        "",
	"AccessRoleBinding": "",
	"AccessAudit":       "",
}

// duplicates decides about resources that the export contains several times. Of a Mesh, the export
// contains a declaration before the document.
func (x *reader) duplicates() {
	at := map[resource.Key]*document{}
	for i := range x.docs {
		d := &x.docs[i]
		if d.root == nil || d.Type == "" {
			continue
		}
		first := at[d.key()]
		switch {
		case first == nil:
			at[d.key()] = d
		case first.declares():
			first.end(LeftOut, "a declaration, which document %d of %s completes", d.Index, d.File)
			at[d.key()] = d
		case bytes.Equal(first.content(), d.content()):
			d.end(LeftOut, "the same as document %d of %s", first.Index, first.File)
		default:
			for _, pair := range [...][2]*document{{first, d}, {d, first}} {
				pair[0].end(Refused, "document %d of %s defines the same resource with other content; remove one of them",
					pair[1].Index, pair[1].File)
			}
		}
	}
}

// content returns a document without the fields that a control plane maintains.
func (d *document) content() []byte {
	n := *d.root
	n.Pairs = nil
	for _, p := range d.root.Pairs {
		switch p.Key {
		case "creationTime", "modificationTime", "kri":
		case "metadata":
			m := *p.Value
			m.Pairs = nil
			for _, f := range p.Value.Pairs {
				if f.Key == "name" || f.Key == "namespace" || f.Key == "labels" || f.Key == "annotations" {
					m.Pairs = append(m.Pairs, f)
				}
			}
			n.Pairs = append(n.Pairs, strict.Pair{Key: p.Key, Value: &m})
		default:
			n.Pairs = append(n.Pairs, p)
		}
	}
	return n.Canonical()
}

// declares reports whether a document is a Mesh without settings.
func (d *document) declares() bool {
	if d.Type != kindMesh {
		return false
	}
	body := d.root
	if d.kubernetes() {
		if body = d.root.Get("spec"); body == nil {
			return true
		}
	}
	for _, p := range body.Pairs {
		switch p.Key {
		case "type", "name", "labels", "creationTime", "modificationTime", "kri", "skipCreatingInitialPolicies":
		default:
			return false
		}
	}
	return true
}

// unset is the creation time of a declaration.
const unset = "0001-01-01"

// declarations refuses declarations without the document of the Mesh. Without its settings, a mesh
// has no mTLS.
func (x *reader) declarations() {
	for i := range x.docs {
		if d := &x.docs[i]; d.Action == "" && d.declares() && strings.HasPrefix(d.mark, unset) {
			d.end(Refused, "it declares the mesh, and the document with the settings of the mesh is missing: "+
				"the export is truncated; export again")
		}
	}
}

// classify decides about a document before it is decoded, and rewrites what refers to Secrets.
func (x *reader) classify(d *document) {
	switch {
	case d.Action != "":
	case d.Type == kindSecret || d.Type == kindGlobalSecret:
		d.Action = kindSecret // decided by finishSecrets
	case d.kubernetes() && !strings.HasPrefix(text(d.root, "apiVersion"), "kuma.io/"):
		d.end(LeftOut, "apiVersion: %s is not an API of Kuma", strict.Quote(text(d.root, "apiVersion")))
	case d.Type == kindMeshService && d.generated():
		d.end(LeftOut, "the control plane generated it from the tags of Dataplanes, and agents derive it from them")
	default:
		if d.kubernetes() && text(d.root, "metadata", "namespace") != "" && d.Type == "Dataplane" {
			d.Reasons = append(d.Reasons, "metadata.namespace: the proxy's name is "+strict.Quote(d.Name)+
				" as in Kuma on Kubernetes; export with --format universal if the control plane is universal")
		}
		x.useSecrets(d)
	}
}

// generated reports whether a control plane generated a MeshService from tags.
func (d *document) generated() bool {
	labels := d.root.Get("labels")
	if d.kubernetes() {
		labels = d.root.Get("metadata").Get("labels")
	}
	selector := d.root.Get("spec").Get("selector")
	return text(labels, resource.LabelManagedBy) == "meshservice-generator" &&
		selector.Get("dataplaneTags") != nil && len(selector.Pairs) == 1
}
