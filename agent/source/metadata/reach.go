package metadata

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// MetadataAnnotations is the field of the xDS node metadata that contains the annotations of the
// proxy.
const MetadataAnnotations = "annotations"

// metadataFeatures is the field of the xDS node metadata that lists what a kuma-dp supports, and
// featureUnifiedNaming the feature that changes the names of all resources in Envoy.
const (
	metadataFeatures     = "features"
	featureUnifiedNaming = "feature-unified-resource-naming"
)

// annotationPath is the path of the annotations in the bootstrap of an Envoy.
const annotationPath = "node.metadata." + MetadataAnnotations

// ReachNotes parses the annotations that restrict what a proxy reaches, like the agent does. It
// returns notes about invalid references; the error contains all faults.
func ReachNotes(annotations map[string]string) ([]string, error) {
	reach, faults := resource.ParseReach(MetadataAnnotations, annotations)
	return reach.Notes, faults.Err()
}

// sidecarReach holds the reachability annotations of one node.
type sidecarReach struct {
	given  bool            // the stream has metadata; otherwise the previous value stays
	reach  *resource.Reach // nil: no annotation
	faults resource.Faults
	// unified is true if the proxy expects the names of unified resource naming
	unified bool
}

// reachOf parses the annotations of a node. Invalid annotations do not refuse the stream.
func reachOf(n *core.Node) sidecarReach {
	if n.GetMetadata() == nil {
		return sidecarReach{}
	}
	out := sidecarReach{given: true}
	for _, v := range n.GetMetadata().GetFields()[metadataFeatures].GetListValue().GetValues() {
		out.unified = out.unified || v.GetStringValue() == featureUnifiedNaming
	}
	field := n.GetMetadata().GetFields()[MetadataAnnotations]
	if field == nil {
		return out
	}
	list, ok := field.GetKind().(*structpb.Value_StructValue)
	if !ok {
		out.faults = resource.Faults{{Field: annotationPath, Reason: "it is not a map of strings"}}
		return out
	}
	annotations := map[string]string{}
	for _, k := range []string{resource.AnnotationReachableBackends, resource.AnnotationReachableServices,
		resource.AnnotationHTTPProbes} {
		v, there := list.StructValue.GetFields()[k]
		if !there {
			continue
		}
		text, ok := v.GetKind().(*structpb.Value_StringValue)
		if !ok {
			out.faults = append(out.faults, resource.Fault{Field: fmt.Sprintf("%s[%q]", annotationPath, k),
				Reason: "it is not a string; write the YAML as one string"})
			continue
		}
		annotations[k] = text.StringValue
	}
	reach, faults := resource.ParseReach(annotationPath, annotations)
	out.faults = append(out.faults, faults...)
	if !reach.IsZero() || len(reach.Notes) > 0 {
		out.reach = &reach
	}
	return out
}

// merge applies the annotations of a new stream to those of an earlier one. If an annotation is
// invalid, its last valid value stays in force, so a misspelt restriction changes nothing.
func (s *sidecarReach) merge(before sidecarReach) sidecarReach {
	if !s.given {
		return before
	}
	out := *s
	if len(out.faults) > 0 && before.reach != nil {
		merged := *before.reach
		merged.Notes = nil
		if out.reach != nil {
			merged.Notes = out.reach.Notes
			if out.reach.Services != nil {
				merged.Services = out.reach.Services
			}
			if out.reach.Backends != nil {
				merged.Backends = out.reach.Backends
			}
			if out.reach.Probes != nil {
				merged.Probes = out.reach.Probes
			}
		}
		out.reach = &merged
	}
	if out.reach != nil && before.reach != nil && reflect.DeepEqual(*out.reach, *before.reach) {
		out.reach = before.reach // so that a reconnect changes nothing
	}
	return out
}

// Sidecars returns the reachability annotations of a mesh's proxies by dataplane. Callers must not
// modify the map.
func (s *Source) Sidecars(mesh string) map[string]*resource.Reach {
	return s.published.Load().sidecars[mesh]
}

// publish updates the state that passes read, and calls Changed if the annotations have changed. mu
// must be held.
func (s *Source) publish() {
	next := &published{sidecars: map[string]map[string]*resource.Reach{}, awaited: map[string]bool{}}
	var faults []api.Problem
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[id]
		key, ok := keyOf(id)
		if !ok {
			continue
		}
		if n.awaited {
			next.awaited[id] = true
		}
		if n.unused != "" {
			next.problems = append(next.problems, api.Problem{Resource: key.String(), Severity: api.SeverityWarning,
				Reason: "the Dataplane in its Envoy's node metadata is not used: " + n.unused})
		}
		if n.sidecar.unified {
			next.problems = append(next.problems, api.Problem{Resource: key.String(), Severity: api.SeverityWarning,
				Reason: fmt.Sprintf("its node metadata lists %s, and resources in Envoy keep their names: unified resource naming "+
					"is planned for %s; dashboards and patches for this proxy must use the names without it",
					featureUnifiedNaming, resource.LaterVersion)})
		}
		inForce := "it has no effect"
		if n.sidecar.reach != nil {
			inForce = "the last valid value stays in force"
			if next.sidecars[key.Mesh] == nil {
				next.sidecars[key.Mesh] = map[string]*resource.Reach{}
			}
			next.sidecars[key.Mesh][key.Name] = n.sidecar.reach
		}
		for _, f := range n.sidecar.faults {
			faults = append(faults, api.Problem{Resource: key.String(), Severity: api.SeverityError,
				Reason: fmt.Sprintf("an annotation of its Envoy is invalid, %s: %s",
					inForce, clip.PrintableText(f.String(), maxStatusBytes))})
		}
	}
	next.problems = append(next.problems, faults...)
	before := s.published.Swap(next)
	if s.o.Changed != nil &&
		(!maps.EqualFunc(before.sidecars, next.sidecars, maps.Equal) || !maps.Equal(before.awaited, next.awaited)) {
		s.o.Changed()
	}
}
