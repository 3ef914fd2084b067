package ads

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Limits for the extensions that clients report. A stock Envoy reports about 500, 400 of them with
// a type.
const (
	maxBuilds     = 64   // number of cached builds
	maxExtensions = 2048 // of one build; a longer list is ignored
	maxTypeName   = 256  // in bytes; a longer name is ignored
)

// builds caches the Envoy builds that clients report. Envoys of the same build share one. It is
// safe for concurrent use.
type builds struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]*finding.Build
}

// of returns the build that a client reports in its node, nil if it does not report its version.
func (b *builds) of(n *core.Node) *finding.Build {
	version := finding.ParseVersion(userAgentVersion(n))
	if !version.Known() || n.GetUserAgentName() != "envoy" {
		return nil
	}
	sum := sha256.New()
	_, _ = io.WriteString(sum, version.String())
	count := 0
	eachExtension(n, func(category, name string) {
		count++
		_, _ = io.WriteString(sum, "\x00"+category+"\x00"+name)
	})
	key := [sha256.Size]byte(sum.Sum(nil))
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.known[key]; known != nil {
		return known
	}
	out := &finding.Build{Version: version}
	if count > 0 && count <= maxExtensions {
		out.Extensions = map[string]map[string]bool{}
		eachExtension(n, func(category, name string) {
			if out.Extensions[category] == nil {
				out.Extensions[strings.Clone(category)] = map[string]bool{}
			}
			out.Extensions[category][strings.Clone(name)] = true
		})
	}
	if b.known == nil || len(b.known) >= maxBuilds {
		b.known = map[[sha256.Size]byte]*finding.Build{}
	}
	b.known[key] = out
	return out
}

// eachExtension calls fn with the category and the type of each extension that a client has
// compiled in and enabled.
func eachExtension(n *core.Node, fn func(category, typeName string)) {
	for _, e := range n.GetExtensions() {
		for _, name := range e.GetTypeUrls() {
			if !e.GetDisabled() && len(e.GetCategory()) <= maxTypeName && len(name) <= maxTypeName {
				fn(e.GetCategory(), name)
			}
		}
	}
}

// userAgentVersion returns the version that a client reports, "" for none.
func userAgentVersion(n *core.Node) string {
	if v := n.GetUserAgentVersion(); v != "" {
		return v
	}
	if v := n.GetUserAgentBuildVersion().GetVersion(); v != nil {
		return fmt.Sprintf("%d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
	}
	return ""
}
