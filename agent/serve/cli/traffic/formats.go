// Package traffic implements the commands that read logs, and those that propose policies from
// logs.
package traffic

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// maxConfigs bounds the proxies whose log formats are requested.
const formatsMost = 64

// logFormats returns the log formats of some files by path, from the configs of the proxies that
// write them. It reports formats that it cannot determine, and continues.
func logFormats(ctx context.Context, env *command.Env, streams []api.LogStream,
	paths []string) map[string]*traffic.Formats {
	of := map[[2]string]map[string]string{} // the file behind a FIFO, by proxy
	for i := range streams {
		s := &streams[i]
		path, ok := strings.CutPrefix(s.Destination, "file ")
		if s.Kind != api.LogFIFO || !ok || !slices.Contains(paths, path) {
			continue
		}
		key := [2]string{s.Mesh, s.Dataplane}
		if of[key] == nil {
			of[key] = map[string]string{}
		}
		of[key][s.Name] = path
	}
	collected := traffic.FormatList{}
	asked := 0
	for _, key := range slices.SortedFunc(maps.Keys(of), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		if asked == formatsMost {
			text.Printf(env.Stderr, "the formats of further proxies are not looked at: %d; name one with --dataplane\n",
				len(of)-asked)
			break
		}
		asked++
		config, err := env.Client().Config(ctx, key[0], key[1], render.ConfigOptions{})
		if err == nil {
			err = collected.Add(config.XDS, of[key])
		}
		if err != nil {
			text.Printf(env.Stderr, "the formats of %s/%s are not known: %v\n", key[0], key[1], err)
		}
	}
	out := map[string]*traffic.Formats{}
	for _, path := range slices.Sorted(maps.Keys(collected)) {
		formats, reasons := traffic.NewFormats(collected[path])
		out[path] = formats
		for _, r := range reasons {
			text.Printf(env.Stderr, "%s: status codes are not told of all lines: %s\n", path, r)
		}
	}
	return out
}

// Commands returns the commands that read logs.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{logsCommand(env), passthroughCommand(env), reachableCommand(env)}
}
