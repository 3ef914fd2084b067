package accesslog

import (
	"encoding/json"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/rotation"
)

// noRotation is the text instead of limits.
const noRotation = "none"

// DecodeNode decodes limits, or "none".
func (r *Rotation) DecodeNode(d *strict.Decoder, n *strict.Node) {
	switch {
	case n.Kind == strict.String && n.Text == noRotation:
		r.None = true
	case n.Kind == strict.String:
		d.Faultf(n.Line, "%s is unknown: give limits, for example {maxFiles: 10}, or %s", n.Show(), noRotation)
	default:
		d.Decode(n, &r.RotationLimits)
	}
}

// TextOr returns the text and a value of the other form, for the schema.
func (Rotation) TextOr() (string, any) { return noRotation, RotationLimits{} }

// MarshalJSON returns the limits, or "none".
func (r Rotation) MarshalJSON() ([]byte, error) {
	if r.None {
		return json.Marshal(noRotation)
	}
	return json.Marshal(r.RotationLimits)
}

// limits converts the limits.
func (r *Rotation) limits() rotation.Limits {
	if r == nil {
		return rotation.Limits{MaxFileSize: rotation.Unset, MaxFiles: rotation.Unset, MaxFileAge: rotation.Unset}
	}
	or := func(n *int) int {
		if n == nil {
			return rotation.Unset
		}
		return *n
	}
	return rotation.Limits{MaxFileSize: or(r.MaxFileSize), MaxFiles: or(r.MaxFiles), MaxFileAge: or(r.MaxFileAge)}
}

// rotated reports whether the agent writes the file of a sink.
func (s *sink) rotated(paths *logpaths.Rules) bool {
	return s.kind == sinkFile && (s.rotate == nil || !s.rotate.None) && paths.Rotates(s.path, s.rotate != nil)
}

// ownFile reports whether policies may name the file of a sink on this node, with a warning if not,
// and warns about rotation without effect.
func (w *writer) ownFile(owner resource.Key, s *sink) bool {
	paths := w.c.Paths
	if paths.Refused(s.path) != "" {
		w.c.Host.Warn(owner, "%s", paths.Warning(s.path, true))
		return false
	}
	if paths != nil && s.rotate != nil && !s.rotate.None && !s.rotated(paths) {
		w.c.Host.Warn(owner, "the rotation of the file %s has no effect, because accessLog.rotation is %s in the config of "+
			"this node; set it to always or policy", toolkit.Clip(s.path), noRotation)
	}
	return true
}

// FileWarnings returns the warnings about files; see [logpaths.Rules.Warning].
func (c *Conf) FileWarnings(paths *logpaths.Rules) (out []string) {
	if c.Backends == nil {
		return nil
	}
	for i := range *c.Backends {
		if b := &(*c.Backends)[i]; b.Type != "reference" {
			out = append(out, b.warnings(paths)...)
		}
	}
	return out
}

// FileWarnings returns the warnings about files; see [logpaths.Rules.Warning].
func (s *BackendSpec) FileWarnings(paths *logpaths.Rules) []string { return s.warnings(paths) }

func (b *Backend) warnings(paths *logpaths.Rules) []string {
	s := b.sink()
	if s.kind != sinkFile {
		return nil
	}
	if why := paths.Warning(s.path, s.rotate != nil); why != "" {
		return []string{why}
	}
	return nil
}
