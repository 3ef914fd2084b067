package inject

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/redirect"
)

// InjectionAnnotation identifies what was injected: other options, or another version of nearside,
// give another value.
const InjectionAnnotation = "nearside.io/injection"

// Plan returns the edits that add the sidecar to a pod, for which Select has decided on injection.
// For a pod that is already injected, it returns no edits, and a note if this version would inject
// something else. An error names the field, its value, and the remedy; nothing is then injected.
func Plan(pod Pod, o Options) (Edits, []Note, error) {
	s, notes, err := parseSettings(pod, o)
	if err != nil {
		return nil, nil, err
	}
	// The hash is that of the sidecar without the probes of the application, because an injected pod
	// does not show what they were.
	container, err := s.container(nil)
	if err != nil {
		return nil, nil, err
	}
	hash, err := s.hash(container)
	if err != nil {
		return nil, nil, err
	}
	if i := slices.IndexFunc(pod.Spec.InitContainers, isSidecar); i >= 0 &&
		pod.Metadata.Annotations[InjectedAnnotation] == "true" {
		return nil, injectedBefore(pod, hash), nil
	}
	if err := checkConflicts(pod, s); err != nil {
		return nil, nil, err
	}
	probes := planProbes(pod, s)
	if len(probes.routes) > 0 {
		if container, err = s.container(probes.routes); err != nil {
			return nil, nil, err
		}
	}
	lifecycles := planLifecycles(pod, s)
	edits := Edits{}
	annotate := func(key, value string) {
		if _, ok := pod.Metadata.Annotations[key]; !ok {
			edits = append(edits, Edit{Path: Path{"metadata", "annotations", key}, Op: Add, Value: value})
		}
	}
	annotate(InjectedAnnotation, "true")
	annotate(InjectionAnnotation, hash)
	if s.meshElsewhere {
		annotate(MeshKey, s.mesh)
	}
	if probes.ports != "" {
		annotate(redirect.AnnotationProbePorts, probes.ports)
	}
	edits = append(edits, probes.edits...)
	edits = append(edits, lifecycles.edits...)
	edits = append(edits, Edit{Path: Path{"spec", "initContainers"}, Op: Prepend, Value: container})
	for _, v := range s.volumes() {
		edits = append(edits, Edit{Path: Path{"spec", "volumes"}, Op: Append, Value: v})
	}
	return edits, slices.Concat(notes, probes.notes, lifecycles.notes), nil
}

func isSidecar(c Container) bool { return c.Name == ContainerName }

// injectedBefore returns a note if a pod was injected with something else than now.
func injectedBefore(pod Pod, hash string) []Note {
	before := pod.Metadata.Annotations[InjectionAnnotation]
	if before == hash {
		return nil
	}
	return []Note{{Field: annotation(InjectionAnnotation), Warning: true,
		Text: fmt.Sprintf("%q: other options or another version injected this pod, and it is unchanged; now it would be %s. "+
			"Inject the original manifest to update the sidecar", before, hash)}}
}

// hash identifies a sidecar and its volumes.
func (s *settings) hash(c *container) (string, error) {
	text, err := json.Marshal([]any{c, s.volumes()})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// checkConflicts rejects pods whose names, ports, or users conflict with the sidecar.
func checkConflicts(pod Pod, s *settings) error {
	var faults []error
	faultf := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, l := range lists(pod) {
		for i, c := range l.containers {
			if isSidecar(c) {
				faultf("%s: %q is the name of the sidecar, but the pod lacks the annotation %s: \"true\"; remove the container, "+
					"or inject the original manifest", l.path(i).At("name"), c.Name, InjectedAnnotation)
			}
			for j, p := range c.Ports {
				if use, ok := s.ports()[p.ContainerPort]; ok && (p.Protocol == "" || p.Protocol == "TCP") {
					faultf("%s: %d is the port of the sidecar for %s; use another port", l.path(i).At("ports", j, "containerPort"),
						p.ContainerPort, use)
				}
			}
			if uid := runAsUser(c.SecurityContext); uid == s.uid {
				faultf("%s: %d is also the user of the sidecar, whose traffic is not redirected; use another user, or set the "+
					"annotation %s to another one", l.path(i).At("securityContext", "runAsUser"), uid, sidecarUIDAnnotation)
			}
		}
	}
	if uid := runAsUser(pod.Spec.SecurityContext); uid == s.uid {
		faultf("spec.securityContext.runAsUser: %d is also the user of the sidecar, whose traffic is not redirected; use "+
			"another user, or set the annotation %s to another one", uid, sidecarUIDAnnotation)
	}
	for i, v := range pod.Spec.Volumes {
		if v.Name == runVolume || v.Name == envoyVolume {
			faultf("spec.volumes[%d].name: %q is the name of a volume of the sidecar; rename the volume", i, v.Name)
		}
	}
	return errors.Join(faults...)
}

// runAsUser returns the user of a security context, or -1.
func runAsUser(securityContext json.RawMessage) int64 {
	var c struct {
		RunAsUser *int64 `json:"runAsUser"`
	}
	if json.Unmarshal(securityContext, &c) != nil || c.RunAsUser == nil {
		return -1
	}
	return *c.RunAsUser
}

// list is a list of containers of a pod.
type list struct {
	name       string
	containers []Container
}

func (l list) path(i int) Path { return Path{"spec", l.name}.At(i) }

func lists(pod Pod) []list {
	return []list{{"initContainers", pod.Spec.InitContainers}, {"containers", pod.Spec.Containers}}
}
