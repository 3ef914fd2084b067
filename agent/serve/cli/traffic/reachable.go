package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func reachableCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:     "reachable",
		Short:   "Work with the services that a proxy reaches",
		Example: "  nearside reachable suggest --dataplane web",
	}, reachableSuggestCommand(env))
}

// reachableFlags holds the flags of a proposal.
type reachableFlags struct {
	dataplane string
	files     command.FileFlags
	logs      []string
	since     string
	options   traffic.ReachableOptions
	format    *string
}

func reachableSuggestCommand(env *command.Env) *cobra.Command {
	var f reachableFlags
	cmd := &cobra.Command{
		Use:   "suggest --dataplane NAME",
		Short: "Propose the reachable services of a Dataplane",
		Long: `Reads from access logs which services the workload of a dataplane calls, and prints the lists for
networking.transparentProxying of its Dataplane: reachableBackends for service resources, and
reachableServices for values of kuma.io/service. Services that permissions deny are omitted. A
reachable service stays listed if no log covers its traffic.

Standard error has a table with the evidence for each service, the listed but unused services, the
permitted but unused services, and the number of lines that could not be assigned, with reasons.

The logs are the files behind the loggers of the proxy's config, each with its rotated files. --log
reads other files with lines in the same formats; "-" is standard input. The format decides for
which service a line counts: by the name in place of %KUMA_DESTINATION_SERVICE%, else by
%UPSTREAM_CLUSTER%, %DOWNSTREAM_LOCAL_ADDRESS%, %UPSTREAM_HOST%, or %REQ(:AUTHORITY)%, as far as
clients cannot shift these values. Only services of the mesh are proposed.

The exit code is 2 if there is nothing to propose, or if the workload called a service that a list
of the Dataplane excludes. With -f, config and services come only from these resources, without an
agent; NEARSIDE_NODE_ZONE sets the zone.`,
		Example: `  nearside reachable suggest --dataplane web
  nearside reachable suggest --dataplane web --since 7d --permitted > list.yaml
  zcat web.log.*.gz |
    nearside reachable suggest --dataplane web -f resources/ --log - -o json`,
		Args: command.Args(0, 0, "no arguments; select the dataplane with --dataplane"),
	}
	command.MeshFlag(env, cmd)
	f.files.Add(cmd, "compute offline from these resources")
	flags := cmd.Flags()
	command.DataplaneFlag(env, cmd, &f.dataplane, "name of the dataplane whose workload calls services (required)")
	flags.StringArrayVar(&f.logs, "log", nil, "log file, with its rotated files; "+
		"repeatable (default: the logs of the proxy's config)")
	flags.StringVar(&f.since, "since", "", "omit older lines: a duration or a time")
	flags.BoolVar(&f.options.Permitted, "permitted", false, "propose all permitted services, used or not")
	flags.BoolVar(&f.options.Keep, "keep", false, "propose all listed services, used or not")
	f.format = command.OutputFlag(cmd, "text", "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.dataplane == "" {
			return command.Usagef("--dataplane is required")
		}
		var since time.Time
		if f.since != "" {
			var err error
			if since, err = traffic.ParseSince(f.since, time.Now()); err != nil {
				return command.Usagef("--since %w", err)
			}
		}
		stdin := 0
		for _, path := range f.logs {
			switch {
			case path == "-":
				stdin++
			case path == "" || strings.HasSuffix(path, "/"):
				return command.Usagef("--log %q is not the path of a file", path)
			case strings.HasSuffix(path, ".gz"):
				return command.Usagef("--log %s is compressed; give the file that it was rotated from, which includes its "+
					"rotated files, or its lines on standard input: zcat %s | … --log -", path, path)
			}
		}
		if stdin > 1 {
			return command.Usagef("--log - is given twice")
		}
		var err error
		if f.dataplane, err = command.DataplaneName(cmd.Context(), env, &f.files, f.dataplane); err != nil {
			return err
		}
		p, err := f.propose(cmd.Context(), env, since)
		if err != nil {
			return err
		}
		for _, n := range p.Notes {
			text.Printf(env.Stderr, "note: %s\n", n)
		}
		return command.Show(env, *f.format, func(w io.Writer, p *traffic.ReachableProposal) {
			text.ReachableProposal(w, env.Stderr, p, *f.format == "table")
		}, func(p *traffic.ReachableProposal) bool { return p.Fragment == "" || p.Unlisted() })(p, nil)
	}
	return cmd
}

// propose requests or computes the config and the services, and reads the logs.
func (f *reachableFlags) propose(ctx context.Context, env *command.Env,
	since time.Time) (*traffic.ReachableProposal, error) {
	c := env.Client()
	var backends *explain.Backends
	config, err := command.Answer(env, &f.files, func() (*api.Config, error) {
		config, err := c.Config(ctx, env.Mesh, f.dataplane, render.ConfigOptions{})
		if err == nil {
			backends, err = c.Backends(ctx, env.Mesh, f.dataplane)
		}
		return config, err
	}, func(off *offline.Offline, zone string) (*api.Config, []string, error) {
		config, warnings, err := off.Config(zone, env.Mesh, f.dataplane, render.ConfigOptions{})
		if err == nil {
			backends, err = off.Backends(zone, env.Mesh, f.dataplane)
		}
		return config, warnings, err
	})
	if err != nil {
		return nil, err
	}
	if !backends.Transparent {
		return nil, command.Hinted(fmt.Errorf("dataplane %s has no networking.transparentProxying, "+
			"so lists of reachable services have no effect", f.dataplane),
			"it gets config only for the outbounds in networking.outbound")
	}
	t, err := traffic.NewUsage(config.XDS, backends, since)
	if err != nil {
		return nil, err
	}
	logs, err := t.Readable()
	switch {
	case errors.Is(err, traffic.ErrNotLogged):
		return nil, command.Hinted(fmt.Errorf("the proxy of %s writes no access log", f.dataplane),
			"a MeshAccessLog with backends for the target Mesh in spec.to logs the calls of its workload")
	case err != nil:
		return nil, err
	}
	for _, l := range t.Logs {
		if l.Reason != "" {
			text.Printf(env.Stderr, "warning: %s: %s\n", text.OrDash(l.Path), l.Reason)
		}
		for _, h := range l.Hints {
			text.Printf(env.Stderr, "warning: %s: %s\n", text.OrDash(l.Path), h)
		}
	}
	if len(f.logs) > 0 {
		err = f.readNamed(env, t, logs)
	} else {
		err = f.readOwn(ctx, env, t, logs)
	}
	if err != nil {
		return nil, err
	}
	return t.Propose(f.options)
}

// readNamed reads the files of --log as lines of any log of the proxy.
func (f *reachableFlags) readNamed(env *command.Env, t *traffic.Usage, logs []*traffic.Log) error {
	for _, path := range f.logs {
		if path == "-" {
			if err := t.Read(env.Stdin, logs); err != nil {
				return fmt.Errorf("--log -: %w", err)
			}
			continue
		}
		if err := readTraffic(env, t, path, logs); err != nil {
			return fmt.Errorf("--log %w", unreadable(path, err, logAccess))
		}
	}
	return nil
}

// readOwn reads the files behind the loggers of the config.
func (f *reachableFlags) readOwn(ctx context.Context, env *command.Env, t *traffic.Usage,
	logs []*traffic.Log) error {
	if err := env.OnNode("suggest without --log"); err != nil {
		return err
	}
	var streams []api.LogStream
	if len(f.files.Paths) == 0 {
		got, err := env.Client().AccessLogs(ctx)
		if err != nil {
			return err
		}
		streams = slices.DeleteFunc(got.Items, func(s api.LogStream) bool {
			return s.Kind != api.LogFIFO || s.Mesh != env.Mesh || s.Dataplane != f.dataplane
		})
		var open []*api.LogStream
		for i := range streams {
			if streams[i].Open {
				open = append(open, &streams[i])
			}
		}
		(&logsFlags{}).flush(ctx, env, open)
	}
	of, failed := filesBehind(logs, streams)
	read := 0
	for _, path := range slices.Sorted(maps.Keys(of)) {
		if err := keepsLines(path); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", path, err))
			continue
		}
		if err := readTraffic(env, t, path, of[path]); err != nil {
			failed = append(failed, unreadable(path, err, logAccess))
			continue
		}
		read++
	}
	if read > 0 {
		for _, err := range failed {
			text.Printf(env.Stderr, "warning: %v\n", err)
		}
		return nil
	}
	for _, err := range failed {
		if command.ExitCode(err) == command.ExitPermission {
			return err
		}
	}
	return command.Hinted(fmt.Errorf("no log of the proxy is readable:\n%w", errors.Join(failed...)),
		"give a file with its lines: --log FILE")
}

// filesBehind maps files to the logs whose lines they contain: the log itself, or the file that the
// agent writes from a FIFO. failed lists logs without a file.
func filesBehind(logs []*traffic.Log, streams []api.LogStream) (of map[string][]*traffic.Log, failed []error) {
	of = map[string][]*traffic.Log{}
	for _, l := range logs {
		path := l.Path
		if i := slices.IndexFunc(streams, func(s api.LogStream) bool { return s.Name == path }); i >= 0 {
			file, ok := strings.CutPrefix(streams[i].Destination, "file ")
			if !ok {
				failed = append(failed,
					fmt.Errorf("%s: the lines go to %s, not to a file of the agent", path, streams[i].Destination))
				continue
			}
			path = file
		}
		of[path] = append(of[path], l)
	}
	return of, failed
}

// keepsLines returns an error for a path that stores no lines, such as a FIFO. It ignores other
// errors: the reader reports them, and rotated files of a deleted log may remain.
func keepsLines(path string) error {
	file, err := openLog(path)
	switch {
	case err == nil:
		return file.Close()
	case errors.Is(err, errNoLog), errors.Is(err, fs.ErrPermission):
		return nil
	}
	return err
}

func readTraffic(env *command.Env, t *traffic.Usage, path string, logs []*traffic.Log) error {
	unread, err := t.ReadFile(path, logs)
	for _, err := range unread {
		text.Printf(env.Stderr, "warning: %s: not read completely: %v\n", path, err)
	}
	return err
}
