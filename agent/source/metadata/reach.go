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

// MetadataAnnotations is the field of the xDS node metadata that holds the annotations of the
// proxy.
const MetadataAnnotations = "annotations"

// annotationPath is where they stand in the bootstrap of an Envoy.
const annotationPath = "node.metadata." + MetadataAnnotations

// ReachNotes reads the annotations that say what a proxy may reach as the agent will. It returns
// what leads nowhere in them; the error has every fault.
func ReachNotes(annotations map[string]string) ([]string, error) {
	reach, faults := resource.ParseReach(MetadataAnnotations, annotations)
	return reach.Notes, faults.Err()
}

// sidecarReach is what the annotations of one node say.
type sidecarReach struct {
	given  bool            // there is metadata; without, what was said before stays
	reach  *resource.Reach // nil: nothing is said
	faults resource.Faults
}

// reachOf reads the annotations of a node. One that cannot be read is no reason to refuse the
// stream.
func reachOf(n *core.Node) sidecarReach {
	if n.GetMetadata() == nil {
		return sidecarReach{}
	}
	out := sidecarReach{given: true}
	field := n.GetMetadata().GetFields()[MetadataAnnotations]
	if field == nil {
		return out
	}
	list, ok := field.GetKind().(*structpb.Value_StructValue)
	if !ok {
		out.faults = resource.Faults{{Field: annotationPath, Reason: "it is not a mapping of texts"}}
		return out
	}
	annotations := map[string]string{}
	for _, k := range []string{resource.AnnotationReachableBackends, resource.AnnotationReachableServices} {
		v, there := list.StructValue.GetFields()[k]
		if !there {
			continue
		}
		text, ok := v.GetKind().(*structpb.Value_StringValue)
		if !ok {
			out.faults = append(out.faults, resource.Fault{Field: fmt.Sprintf("%s[%q]", annotationPath, k),
				Reason: "it is not a text; write YAML as one text"})
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

// over takes what a new stream of a node says over what an earlier one did. Of an annotation that
// cannot be read the last that could be stays in force: a restriction that is misspelt neither
// opens nor closes anything.
func (s *sidecarReach) over(before sidecarReach) sidecarReach {
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
		}
		out.reach = &merged
	}
	if out.reach != nil && before.reach != nil && reflect.DeepEqual(*out.reach, *before.reach) {
		out.reach = before.reach // so that a stream that comes again changes nothing
	}
	return out
}

// Sidecars returns what the proxies of a mesh say that they reach, by dataplane. The map must not
// be changed.
func (s *Source) Sidecars(mesh string) map[string]*resource.Reach {
	return s.known.Load().sidecars[mesh]
}

// publish makes known what passes read, and tells when what proxies say that they reach has
// changed. It is called with mu held.
func (s *Source) publish() {
	next := &known{sidecars: map[string]map[string]*resource.Reach{}, awaited: map[string]bool{}}
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
				Reason: "the Dataplane in the node metadata of its Envoy is not used: " + n.unused})
		}
		inForce := "it restricts nothing"
		if n.said.reach != nil {
			inForce = "what could be read last holds"
			if next.sidecars[key.Mesh] == nil {
				next.sidecars[key.Mesh] = map[string]*resource.Reach{}
			}
			next.sidecars[key.Mesh][key.Name] = n.said.reach
		}
		for _, f := range n.said.faults {
			faults = append(faults, api.Problem{Resource: key.String(), Severity: api.SeverityError,
				Reason: fmt.Sprintf("an annotation of its Envoy cannot be used, %s: %s",
					inForce, clip.PrintableText(f.String(), maxStatusBytes))})
		}
	}
	next.problems = append(next.problems, faults...)
	before := s.known.Swap(next)
	if s.o.Changed != nil &&
		(!maps.EqualFunc(before.sidecars, next.sidecars, maps.Equal) || !maps.Equal(before.awaited, next.awaited)) {
		s.o.Changed()
	}
}
