package command

import (
	"runtime"
	"runtime/debug"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
)

// BuildInfo is the document of version -o json.
type BuildInfo struct {
	Product  string `json:"product"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the sources
	Modified bool   `json:"modified,omitempty"` // the sources had changes that were not committed
	Schema   string `json:"schema"`             // the newest version of Kuma whose documents are known
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Build says what was built: by the linker's word, else by what the Go command has recorded.
func (env *Env) Build() BuildInfo {
	b := BuildInfo{Product: "nearside", Version: env.Program.Version, Schema: offline.SchemaVersion, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; b.Version == "" && v != "(devel)" {
			b.Version = v
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	return b
}
