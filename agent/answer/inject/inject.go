// Package inject decides what the injection of a sidecar adds to a pod template. It knows neither
// the text of manifests nor a cluster: callers decode a template, and apply the edits to the text
// or send them as a JSON Patch. The same template and options give the same edits.
package inject

import (
	"strconv"
	"strings"
	"time"
)

// Names that injected pods, the watcher, and the agent agree on.
const (
	// ContainerName is the name of the sidecar.
	ContainerName = "nearside-envoy"
	// KumaContainerName is the name of the sidecar that Kuma injects.
	KumaContainerName = "kuma-sidecar"
	// InjectedAnnotation marks an injected pod with the value "true".
	InjectedAnnotation = "kuma.io/sidecar-injected"
	// InjectionKey is the label or annotation of pods and namespaces that decides about injection.
	InjectionKey = "kuma.io/sidecar-injection"
	// MeshKey is the label or annotation of pods and namespaces that names the mesh.
	MeshKey = "kuma.io/mesh"
	// DefaultMesh is the mesh of pods that name none.
	DefaultMesh = "default"
	// DefaultEnvoyImage is the image of the sidecar.
	DefaultEnvoyImage = "docker.io/envoyproxy/envoy:v1.36.2"
	// AgentNamespace is the namespace of the agents, whose pods are never injected.
	AgentNamespace = "nearside"
)

// Identity is how the agent recognizes the pod behind a connection.
type Identity string

// The identities. The default is IdentityCSI.
const (
	IdentityCSI      Identity = "csi"
	IdentityHostPath Identity = "hostpath"
)

// Options configures the injection. Zero values select the defaults.
type Options struct {
	// Mesh is the mesh of pods that name none, and whose namespace names none.
	Mesh string
	// EnvoyImage is the image of the sidecar.
	EnvoyImage string
	// Identity selects the volume of the sidecar.
	Identity Identity
	// EnabledOnly injects only pods that are enabled by a label or annotation of the pod or of its
	// namespace, as Kuma does. Otherwise pods are injected unless they are disabled.
	EnabledOnly bool
	// DrainTime is how long the sidecar waits before it ends, without an annotation of the pod.
	DrainTime time.Duration
	// AppDrainTime is how long application containers wait before they get SIGTERM, without an
	// annotation of the pod.
	AppDrainTime time.Duration
}

// Edits are the edits of one pod template, in the order in which they apply.
type Edits []Edit

// Edit adds or replaces one value of a pod template.
type Edit struct {
	Path Path
	Op   Op
	// Value encodes as JSON. Fields of structs keep their order in the manifest.
	Value any
}

// Op is what an edit does at its path.
type Op string

// The operations. All of them create missing parents: a mapping for a key, and an empty sequence
// for Append and Prepend.
const (
	// Add adds the last key of the path to a mapping that does not have it.
	Add Op = "add"
	// Append adds an item at the end of the sequence at the path.
	Append Op = "append"
	// Prepend adds an item at the start of the sequence at the path. Later edits see the new indexes.
	Prepend Op = "prepend"
	// Replace replaces the scalar at the path. It is the only operation that changes existing text.
	Replace Op = "replace"
)

// Path leads from the pod template (which has the keys metadata and spec) to a value. Steps are
// keys of mappings, and decimal indexes of sequences.
type Path []string

// At returns the path of a value below this one. Steps are strings (keys) and ints (indexes).
func (p Path) At(steps ...any) Path {
	out := append(Path(nil), p...)
	for _, s := range steps {
		switch s := s.(type) {
		case string:
			out = append(out, s)
		case int:
			out = append(out, strconv.Itoa(s))
		}
	}
	return out
}

// Pointer returns the path as a JSON Pointer.
func (p Path) Pointer() string {
	var b strings.Builder
	for _, s := range p {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(s))
	}
	return b.String()
}

// String returns the path as messages name it: spec.containers[0].ports.
func (p Path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch _, err := strconv.Atoi(s); {
		case err == nil:
			b.WriteString("[" + s + "]")
		case strings.ContainsAny(s, "./"):
			b.WriteString("[" + strconv.Quote(s) + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s)
		}
	}
	return b.String()
}

// Note tells the user about a decision: what is skipped, or what an annotation does not do.
type Note struct {
	// Field is the path below the pod template that the note is about, "" for the whole pod.
	Field string
	Text  string
	// Warning marks a note that the user should act on.
	Warning bool
}
