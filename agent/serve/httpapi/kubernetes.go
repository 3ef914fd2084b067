package httpapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
)

// systemNamespace is the namespace of resources without one, as in Kuma.
const systemNamespace = "kuma-system"

// kubernetesFormat reports whether the query asks for a resource in Kubernetes format, as "kumactl
// export --format kubernetes" does.
func kubernetesFormat(r *http.Request, meta bool) (bool, *api.Error) {
	switch format := r.URL.Query().Get("format"); format {
	case "k8s", "kubernetes":
		if meta {
			return false, httpjson.InvalidQuery("format", format, "meta=true needs the universal format")
		}
		return true, nil
	case "", "universal":
		return false, nil
	default:
		return false, httpjson.InvalidQuery("format", format, "give universal, k8s or kubernetes")
	}
}

// object is a resource in Kubernetes format.
type object struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   objectMeta      `json:"metadata"`
	Mesh       string          `json:"mesh,omitempty"`
	Spec       json.RawMessage `json:"spec"`
	Status     json.RawMessage `json:"status,omitempty"`
}

type objectMeta struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace,omitempty"`
	Created   string            `json:"creationTimestamp"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// kubernetes returns a record in Kubernetes format. Kinds with a spec have the mesh in a label, the
// others in a field. Mesh and the legacy kinds belong to no namespace.
func kubernetes(d resource.Descriptor, rec store.Record) (object, *api.Error) {
	res := rec.Resource
	out := object{APIVersion: resource.APIVersion, Kind: res.Kind}
	out.Metadata = objectMeta{Name: res.Name, Created: rec.Created.UTC().Format(time.RFC3339),
		Labels: maps.Clone(res.Labels)}
	if !d.SpecAtTop || res.Kind == kindDataplane || d.Scope == resource.ScopeGlobal && res.Kind != kindMesh {
		out.Metadata.Namespace = systemNamespace
		if ns := res.Namespace(); ns != "" {
			out.Metadata.Namespace, out.Metadata.Name = ns, strings.TrimSuffix(res.Name, "."+ns)
			delete(out.Metadata.Labels, resource.LabelNamespace)
		}
	}
	if d.SpecAtTop {
		out.Mesh = res.Mesh
		spec, err := resource.ShownSpec(res)
		if err != nil {
			return out, encodeFailed(rec.Key, err)
		}
		out.Spec = spec
		return out, nil
	}
	if out.Metadata.Labels == nil {
		out.Metadata.Labels = map[string]string{}
	}
	out.Metadata.Labels[resource.LabelMesh] = res.Mesh
	doc, err := resource.Shown(res)
	if err == nil {
		err = json.Unmarshal(doc, &struct {
			Spec   *json.RawMessage
			Status *json.RawMessage
		}{&out.Spec, &out.Status})
	}
	if err != nil {
		return out, encodeFailed(rec.Key, err)
	}
	return out, nil
}
