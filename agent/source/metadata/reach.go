package metadata

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// MetadataAnnotations is the field of the xDS node metadata that holds the annotations of the proxy.
const MetadataAnnotations = "annotations"

// annotationPath is where they stand in the bootstrap of an Envoy.
const annotationPath = "node.metadata." + MetadataAnnotations

// ReachNotes reads the annotations that say what a proxy may reach as the agent will. It returns what leads nowhere in
// them; the error has every fault.
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

// reachOf reads the annotations of a node. One that cannot be read is no reason to refuse the stream.
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
			out.faults = append(out.faults, resource.Fault{Field: fmt.Sprintf("%s[%q]", annotationPath, k), Reason: "it is not a text; write YAML as one text"})
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

// over takes what a new stream of a node says over what an earlier one did. Of an annotation that cannot be read the
// last that could be stays in force: a restriction that is misspelt neither opens nor closes anything.
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

// Sidecars returns what the proxies of a mesh say that they reach, by dataplane. The map must not be changed.
func (s *Source) Sidecars(mesh string) map[string]*resource.Reach {
	if all := s.sidecars.Load(); all != nil {
		return (*all)[mesh]
	}
	return nil
}

// publishReach makes what proxies say known, and tells when it has changed. It is called with mu held.
func (s *Source) publishReach() {
	next := map[string]map[string]*resource.Reach{}
	for id, n := range s.nodes {
		if n.said.reach == nil {
			continue
		}
		mesh, name, err := node.ParseID(id)
		if err != nil {
			continue
		}
		if next[mesh] == nil {
			next[mesh] = map[string]*resource.Reach{}
		}
		next[mesh][name] = n.said.reach
	}
	if have := s.sidecars.Load(); have != nil && maps.EqualFunc(*have, next, maps.Equal) || have == nil && len(next) == 0 {
		return
	}
	s.sidecars.Store(&next)
	if s.o.Changed != nil {
		s.o.Changed()
	}
}

// reachProblems lists the annotations that cannot be read. It is called with mu held.
func (s *Source) reachProblems(out []inspect.Problem) []inspect.Problem {
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[id]
		mesh, name, err := node.ParseID(id)
		if len(n.said.faults) == 0 || err != nil {
			continue
		}
		kept := "it restricts nothing"
		if n.said.reach != nil {
			kept = "what could be read last holds"
		}
		for _, f := range n.said.faults {
			out = append(out, inspect.Problem{Resource: resource.Key{Kind: "Dataplane", Mesh: mesh, Name: name}.String(), Severity: inspect.SeverityError,
				Reason: fmt.Sprintf("an annotation of its Envoy cannot be used, %s: %s", kept, f.String())})
		}
	}
	return out
}
