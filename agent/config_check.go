package agent

import (
	"fmt"
	"slices"
	"strings"

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
			fault(f.path, "%q is not an absolute path", clip(p))
		case t.socket && len(p) > maxSocketBytes:
			fault(f.path, "%s has %d bytes, and the system takes at most %d for a socket; set a shorter path or a shorter paths.run", p, len(p), maxSocketBytes)
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
	best, bestDistance := "", 4
	for _, f := range fs {
		if strings.EqualFold(f.path, key) {
			return fmt.Sprintf("; did you mean %s?", f.path)
		}
		if d := distance(strings.ToLower(key), strings.ToLower(f.path), bestDistance); d < bestDistance {
			best, bestDistance = f.path, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is the Levenshtein distance of two texts, or limit when it is at least that.
func distance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) >= limit || len(a) > 128 {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
