package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/logread"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// wants reports whether a stream is one of those that are asked for.
func (f *logsFlags) wants(s *client.LogStream) bool {
	return (f.mesh == "" || s.Mesh == f.mesh) && (f.dataplane == "" || s.Dataplane == f.dataplane)
}

// needsFormats reports whether a filter asks for what only the format of a line can tell.
func needsFormats(filter *logread.Filter) bool { return filter.Codes != nil || !filter.Since.IsZero() }

// more returns a function that asks the agent which files there are now, for logs that are
// followed: policies and proxies come and go. An agent that does not answer has no more for the
// time being. The formats of files that are new are added where the filter needs them. It is nil
// where no file can come.
func (f *logsFlags) more(ctx context.Context, a *app, known []string, formats map[string]*logread.Formats,
	filter *logread.Filter) func() []string {
	if !f.follow || len(f.files) > 0 || f.what != logAccess {
		return nil
	}
	return func() []string {
		got, err := a.quick(logread.MoreEach).AccessLogs(ctx)
		if err != nil {
			return nil
		}
		var paths, unknown []string
		for i := range got.Items {
			s := &got.Items[i]
			if path, ok := strings.CutPrefix(s.Destination, "file "); ok && f.wants(s) {
				paths = append(paths, path)
				if !slices.Contains(known, path) {
					unknown = append(unknown, path)
				}
			}
		}
		if known = append(known, unknown...); len(unknown) > 0 && needsFormats(filter) {
			within, stop := context.WithTimeout(ctx, logread.MoreEach)
			maps.Copy(formats, logFormats(within, a, got.Items, unknown))
			stop()
		}
		return paths
	}
}
