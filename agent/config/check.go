package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Validate reports what is wrong with the config as a whole: what [Load] cannot see at a single key. A config that
// was put together by hand needs absolute paths.
func (c *Config) Validate() resource.Faults {
	var out resource.Faults
	fault := func(key, format string, args ...any) {
		out = append(out, resource.Fault{Field: key, Reason: fmt.Sprintf(format, args...)})
	}
	for _, f := range c.fields() {
		t, ok := f.value.(pathText)
		if !ok {
			continue
		}
		switch p := *t.p; {
		case p == "" && t.required:
			fault(f.path, "is empty; give a path")
		case p != "" && p[0] != '/':
			fault(f.path, "%q is not an absolute path", clip.Value(p))
		case t.socket && len(p) > MaxSocketBytes:
			fault(f.path, "%s has %d bytes, and the system takes at most %d for a socket; set a shorter path or a shorter paths.run", p, len(p), MaxSocketBytes)
		}
	}
	if c.API.Socket.Path == c.XDS.Socket.Path {
		fault("xds.socket.path", "%s is that of api.socket.path too; give each its own", c.XDS.Socket.Path)
	}
	if c.API.TCP != "" && c.API.TCP == c.XDS.TCP && !strings.HasSuffix(c.API.TCP, ":0") {
		fault("xds.tcp", "%q is that of api.tcp too; give each its own", c.XDS.TCP)
	}
	if c.Trust.Mode != "off" && c.Trust.Mode != "" && c.Trust.File == "" {
		fault("trust.file", "is empty, and trust.mode %s needs it; name the trust file", c.Trust.Mode)
	}
	out = append(out, c.VIPs.faults()...)
	if c.Gossip.Bind == "" && len(c.Gossip.Join) > 0 {
		fault("gossip.join", "names members, and gossip.bind is empty; set the address to join from")
	}
	return out
}

// findField returns the field with that path, or nil.
func findField(fs []field, path string) *field {
	i := slices.IndexFunc(fs, func(f field) bool { return f.path == path })
	if i < 0 {
		return nil
	}
	return &fs[i]
}

// isSection reports whether fields lie below a key, or will one day.
func isSection(fs []field, key string) bool {
	return slices.Contains(emptySections[:], key) ||
		slices.ContainsFunc(fs, func(f field) bool { return strings.HasPrefix(f.path, key+".") })
}

// suggest names the key that is meant, when one is near.
func suggest(key string, fs []field) string {
	paths := make([]string, len(fs))
	for i := range fs {
		paths[i] = fs[i].path
	}
	if near := resource.Nearest(key, paths); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}
