package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/logline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// findDNS returns the path of the DNS query log.
func (f *logsFlags) findDNS(ctx context.Context, env *command.Env) ([]string, error) {
	d, err := env.Client().DNS(ctx, "", "", 0)
	switch {
	case err != nil:
		return nil, err
	case d.QueryLog == nil:
		return nil, command.Exit(command.ExitPermission,
			command.Hinted(errors.New("the DNS query log requires permission to inspect everything"),
				"you need a role with the verb inspect on all kinds, meshes, and names; nearside access whoami shows your roles"))
	}
	return []string{d.QueryLog.File}, nil
}

// Limits for asking Envoys to flush their logs.
const (
	maxFlushes = 16
	flushWait  = 2 * time.Second
)

// find asks the agent for the files to read, and for the formats of their lines if the filter needs
// them.
func (f *logsFlags) find(ctx context.Context, env *command.Env,
	filter *traffic.Filter) ([]string, map[string]*traffic.Formats, error) {
	if err := env.OnNode("logs without --all-nodes or --file"); err != nil {
		return nil, nil, err
	}
	if f.what == logDNS {
		paths, err := f.findDNS(ctx, env)
		return paths, nil, err
	}
	got, err := env.Client().AccessLogs(ctx)
	if err != nil {
		return nil, nil, withoutAgent(err)
	}
	if f.what == logAudit {
		if got.AuditFile == "" {
			return nil, nil, noAudit()
		}
		return []string{got.AuditFile}, nil, nil
	}
	var paths, unread []string
	var open []*api.LogStream
	writers := map[string][]string{}
	for i := range got.Items {
		s := &got.Items[i]
		source := s.Kind == api.LogFIFO || s.Kind == api.LogReceiver
		path, ok := strings.CutPrefix(s.Destination, "file ")
		if source && ok {
			from := s.Name
			if s.Kind == api.LogFIFO {
				from = s.Mesh + "/" + s.Dataplane
			}
			if !slices.Contains(writers[path], from) {
				writers[path] = append(writers[path], from)
			}
		}
		if !f.wants(s) {
			continue
		}
		if s.Kind == api.LogFIFO && s.Open {
			open = append(open, s)
		}
		switch {
		case ok && !slices.Contains(paths, path):
			paths = append(paths, path)
		case !ok && source:
			unread = append(unread, s.Destination)
		}
	}
	slices.Sort(paths)
	if n := len(unread); n > 0 {
		slices.Sort(unread)
		text.Printf(env.Stderr, "%s not read, because the destination is not a file: %s\n",
			plural.Form(n, "1 stream is", "%d streams are"), strings.Join(slices.Compact(unread), ", "))
	}
	if len(paths) == 0 {
		if err := f.without(ctx, env); err != nil {
			return nil, nil, err
		}
	}
	if f.dataplane != "" {
		for _, path := range paths {
			if w := writers[path]; len(w) > 1 {
				text.Printf(env.Stderr, "%s also has lines of other proxies: %s\n", path, strings.Join(w, ", "))
			}
		}
	}
	f.flush(ctx, env, open)
	if !f.needsFormats(filter) {
		return paths, nil, nil
	}
	templates, err := f.templates(ctx, env)
	if err != nil {
		return nil, nil, err
	}
	return paths, logFormats(ctx, env, got.Items, paths, templates, filter), nil
}

// formatKinds lists the kinds of resources with log formats.
var formatKinds = []string{"meshaccesslogs", "meshaccesslogbackends", "globalaccesslogbackends", "meshes"}

// templates returns the log formats of resources: those in --resources, or those of the agent, as
// far as the user may list them.
func (f *logsFlags) templates(ctx context.Context, env *command.Env) ([]logline.Format, error) {
	var docs []json.RawMessage
	if len(f.resources) > 0 {
		o, err := command.Offline(env, &command.FileFlags{Flag: "--resources", Paths: f.resources, Recursive: true})
		if err != nil {
			return nil, err
		}
		stream, err := o.Stream()
		if err != nil {
			return nil, err
		}
		for doc := range bytes.SplitSeq(stream, []byte("\n---\n")) {
			docs = append(docs, doc)
		}
		return traffic.Templates(docs...), nil
	}
	for _, kind := range formatKinds {
		items, err := env.Client().List(ctx, kind, "")
		if err != nil {
			continue // the formats of proxies and the default formats remain
		}
		for i := range items {
			docs = append(docs, items[i].Resource)
		}
	}
	return traffic.Templates(docs...), nil
}

// noAudit is the error for a sender that may not read the audit log.
func noAudit() error {
	return command.Exit(command.ExitPermission,
		command.Hinted(errors.New("the audit log requires permission to inspect everything"),
			"you need a role with the verb inspect on all kinds, meshes, and names; nearside access whoami shows your roles"))
}

// flush asks Envoys to flush their access logs. If one fails, its last lines may be missing.
func (f *logsFlags) flush(ctx context.Context, env *command.Env, streams []*api.LogStream) {
	asked := map[[2]string]bool{}
	for _, s := range streams {
		key := [2]string{s.Mesh, s.Dataplane}
		if asked[key] || len(asked) == maxFlushes {
			continue
		}
		asked[key] = true
		if err := env.Quick(flushWait).FlushLogs(ctx, s.Mesh, s.Dataplane); err != nil {
			text.Printf(env.Stderr, "the last lines of %s/%s may be missing: %v\n", s.Mesh, s.Dataplane, err)
		}
	}
}

// wants reports whether the flags select a stream.
func (f *logsFlags) wants(s *api.LogStream) bool {
	return (f.mesh == "" || s.Mesh == f.mesh) && (f.dataplane == "" || s.Dataplane == f.dataplane)
}

// needsFormats reports whether the command needs the formats of lines.
func (f *logsFlags) needsFormats(filter *traffic.Filter) bool {
	return f.what == logStats || filter.Codes != nil || !filter.Since.IsZero() || len(filter.Where) > 0
}

// more returns a function that asks the agent for the current files, because policies and proxies
// change while logs are followed. It adds the formats of new files if the filter needs them. If the
// agent does not respond, there are no new files for now. more returns nil if no file can be added.
func (f *logsFlags) more(ctx context.Context, env *command.Env, known []string, formats map[string]*traffic.Formats,
	filter *traffic.Filter) func() []string {
	if !f.follow || len(f.files) > 0 || f.what != logAccess {
		return nil
	}
	return func() []string {
		got, err := env.Quick(traffic.MoreEach).AccessLogs(ctx)
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
		if known = append(known, unknown...); len(unknown) > 0 && f.needsFormats(filter) {
			within, stop := context.WithTimeout(ctx, traffic.MoreEach)
			maps.Copy(formats, logFormats(within, env, got.Items, unknown, nil, filter))
			stop()
		}
		return paths
	}
}

// withoutAgent adds to the hint for an unreachable agent how to read files.
func withoutAgent(err error) error {
	var unreachable *client.UnreachableError
	if errors.As(err, &unreachable) {
		return command.Hinted(err, unreachable.Hint()+"; --file PATH reads a file without an agent")
	}
	return err
}
