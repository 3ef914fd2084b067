package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
)

// version is set by the linker in releases: -X main.version=v1.2.3.
var version string

// buildInfo is the document of version -o json.
type buildInfo struct {
	Product  string `json:"product"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the sources
	Modified bool   `json:"modified,omitempty"` // the sources had changes that were not committed
	Schema   string `json:"schema"`             // the newest version of Kuma whose documents are known
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// buildVersion says what was built: by the linker's word, else by what the Go command has recorded.
func buildVersion() buildInfo {
	b := buildInfo{Product: "nearside", Version: version, Schema: offline.SchemaVersion, Go: runtime.Version(),
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

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  nearside version\n  nearside version -o json",
		Args:    args(0, 0, "no arguments"),
	}
	format := outputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(*cobra.Command, []string) error {
		return show(a, *format, func(b buildInfo) error {
			_, err := fmt.Fprintf(a.stdout, "%s %s (%s, %s; documents of Kuma up to %s)\n",
				b.Product, b.Version, b.Go, b.Platform, b.Schema)
			return err
		}, nil)(buildVersion(), nil)
	}
	return cmd
}
