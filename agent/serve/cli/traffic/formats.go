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
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// maxConfigs bounds the proxies whose log formats are requested.
const maxConfigs = 64

// logFormats returns the log formats of some files by path, from the configs of the proxies that
// write them, and from templates. It reports formats that it cannot determine, and fields that the
// filter cannot read, and continues.
func logFormats(ctx context.Context, env *command.Env, streams []api.LogStream, paths []string,
	templates []logline.Format, filter *traffic.Filter) map[string]*traffic.Formats {
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
	requested := 0
	for _, key := range slices.SortedFunc(maps.Keys(of), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		if requested == maxConfigs {
			text.Printf(env.Stderr, "log formats of %s not requested; select one with --dataplane\n",
				plural.Count(len(of)-requested, "more proxy"))
			break
		}
		requested++
		config, err := env.Client().Config(ctx, key[0], key[1], render.ConfigOptions{})
		if err == nil {
			err = collected.Add(config.XDS, of[key])
		}
		if err != nil {
			text.Printf(env.Stderr, "the log formats of %s/%s are unknown: %v\n", key[0], key[1], err)
		}
	}
	out := map[string]*traffic.Formats{}
	for _, path := range paths {
		formats, reason := traffic.NewFormats(collected[path], templates)
		out[path] = formats
		for _, r := range append(formats.Reasons(filter), reason) {
			if r != "" {
				text.Printf(env.Stderr, "%s: some values are unknown: %s\n", path, r)
			}
		}
	}
	return out
}

// Commands returns the commands that read logs.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{logsCommand(env), passthroughCommand(env), reachableCommand(env)}
}
