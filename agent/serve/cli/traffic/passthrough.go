package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func passthroughCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:     "passthrough",
		Short:   "Work with connections that leave the mesh",
		Example: "  nearside passthrough suggest --dataplane web",
	}, passthroughSuggestCommand(env))
}

// maxLimit is the largest --limit.
const maxLimit = 1000

// suggestFlags holds the flags of a proposal from access logs.
type suggestFlags struct {
	files   command.FileFlags
	logs    []string
	options traffic.PassthroughOptions
	format  *string
}

func passthroughSuggestCommand(env *command.Env) *cobra.Command {
	var f suggestFlags
	cmd := &cobra.Command{
		Use:   "suggest --dataplane NAME",
		Short: "Propose a policy for connections that a proxy refused",
		Long: `Reads from access logs which connections to destinations outside the mesh a proxy refused, and
proposes a MeshPassthrough that allows them: the domain and port for TLS with a server name, and
otherwise the address and port. The most frequent ones come first, with counts and times. Each match
was tested, and destinations that the current policies already allow are omitted. Review every line
before you apply it, because clients choose the names that they send.

The logs are the files to which the proxy logs refused connections, from a MeshAccessLog with
backends for the target Mesh. --log reads other files with lines in the same formats; "-" is
standard input. A format needs %RESPONSE_FLAGS% and %DOWNSTREAM_LOCAL_ADDRESS%, and
%REQUESTED_SERVER_NAME% for domains. Formats in which clients could shift these values are refused.

The exit code is 0 even if there is nothing to propose. With -f, config and answers come only from
these resources, without an agent; NEARSIDE_NODE_ZONE sets the zone.`,
		Example: `  nearside passthrough suggest --dataplane web
  nearside passthrough suggest --dataplane web --log web.log --limit 10
  zcat web.log.*.gz |
    nearside passthrough suggest --dataplane web --log - --wildcards 5 -o json`,
		Args: command.Args(0, 0, "no arguments; select the dataplane with --dataplane"),
	}
	command.MeshFlag(env, cmd)
	f.files.Add(cmd, "compute offline from these resources")
	flags := cmd.Flags()
	command.DataplaneFlag(env, cmd, &f.options.Dataplane,
		"name of the dataplane whose proxy refused connections (required)")
	flags.StringArrayVar(&f.logs, "log", nil,
		"log file; repeatable (default: the logs of the proxy's config)")
	flags.IntVar(&f.options.Limit, "limit", 50, fmt.Sprintf("number of destinations to examine, 1 to %d", maxLimit))
	flags.IntVar(&f.options.Wildcards, "wildcards", 0, "merge this many hosts of a domain (2 or more) into one match for "+
		"the domain, unless it contains a mesh name; 0 never merges")
	flags.StringVar(&f.options.Name, "name", "", "name of the policy (default: derived from the first match)")
	f.format = command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch o := &f.options; {
		case o.Dataplane == "":
			return command.Usagef("--dataplane is required")
		case o.Limit < 1 || o.Limit > maxLimit:
			return command.Usagef("--limit %d is invalid; give 1 to %d", o.Limit, maxLimit)
		case o.Wildcards < 0 || o.Wildcards == 1:
			return command.Usagef("--wildcards %d is invalid; give 0, or at least 2", o.Wildcards)
		}
		var err error
		f.options.Dataplane, err = command.DataplaneName(cmd.Context(), env, &f.files, f.options.Dataplane)
		if err != nil {
			return err
		}
		f.options.Mesh = env.Mesh
		p, err := f.propose(cmd.Context(), env)
		return command.Show(env, *f.format, func(w io.Writer, v *traffic.PassthroughProposal) {
			text.RefusalsProposal(w, env.Stderr, v)
		})(p, err)
	}
	return cmd
}

// propose reads the logs, and asks the agent or computes offline.
func (f *suggestFlags) propose(ctx context.Context, env *command.Env) (*traffic.PassthroughProposal, error) {
	o := &f.options
	c := env.Client()
	ask := func(q explain.ConnectionQuestion) (*explain.Flow, error) { return c.ExplainConnection(ctx, q) }
	config, err := command.Answer(env, &f.files, func() (*api.Config, error) {
		return c.Config(ctx, o.Mesh, o.Dataplane, render.ConfigOptions{})
	}, func(off *offline.Offline, zone string) (*api.Config, []string, error) {
		ask = func(q explain.ConnectionQuestion) (*explain.Flow, error) { return off.ExplainConnection(zone, q) }
		return off.Config(zone, o.Mesh, o.Dataplane, render.ConfigOptions{})
	})
	if err != nil {
		return nil, err
	}
	logs, err := traffic.RefusalLogs(config.XDS)
	if err != nil {
		return nil, err
	}
	collected, err := f.read(env, logs)
	if err != nil {
		return nil, err
	}
	p, err := traffic.ProposePassthrough(collected, *o, ask)
	if err != nil || p.Policy == "" {
		return p, err
	}
	if _, faults := offline.Read([]offline.Text{{Name: "proposal", Data: []byte(p.Policy)}}); len(faults) > 0 {
		return nil, faults.Err()
	}
	return p, nil
}

// read reads the files of --log, or the logs of the config.
func (f *suggestFlags) read(env *command.Env, logs []*traffic.RefusalLog) (*traffic.Refusals, error) {
	if len(logs) == 0 {
		return nil, command.Hinted(fmt.Errorf("the proxy of %s does not log refused connections", f.options.Dataplane),
			"if passthrough is off or has matches, a MeshAccessLog with backends for the target Mesh in spec.to logs them")
	}
	var paths, reasons []string
	readable := false
	for _, l := range logs {
		switch {
		case l.Reason != "":
			reasons = append(reasons, fmt.Sprintf("%s: %s", text.OrDash(l.Path), l.Reason))
		default:
			readable = true
			if !slices.Contains(paths, l.Path) {
				paths = append(paths, l.Path)
			}
		}
	}
	if !readable {
		return nil, fmt.Errorf("no log of refused connections can be read:\n%s", strings.Join(reasons, "\n"))
	}
	c := &traffic.Refusals{}
	if len(f.logs) > 0 {
		for _, path := range f.logs {
			if err := readLog(env, c, path, logs); err != nil {
				return nil, fmt.Errorf("--log %s: %w", path, command.Reason(err))
			}
		}
		return c, nil
	}
	if err := env.OnNode("suggest without --log"); err != nil {
		return nil, err
	}
	opened := 0
	for _, path := range paths {
		of := slices.DeleteFunc(slices.Clone(logs), func(l *traffic.RefusalLog) bool { return l.Path != path })
		if err := readLog(env, c, path, of); err != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", path, command.Reason(err)))
			continue
		}
		opened++
	}
	if opened == 0 {
		return nil, command.Hinted(fmt.Errorf("no log of refused connections can be read:\n%s", strings.Join(reasons, "\n")),
			"give a file with their lines: --log FILE")
	}
	env.Warn(reasons)
	return c, nil
}

// readLog reads one file; "-" is standard input.
func readLog(env *command.Env, c *traffic.Refusals, path string, logs []*traffic.RefusalLog) error {
	if path == "-" {
		return c.Read(env.Stdin, logs)
	}
	file, err := openLog(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return c.Read(file, logs)
}

var errNoLog = errors.New("there is no such file here")

// openLog opens a regular file. Reading a FIFO would steal lines from its reader, and a device may
// be endless.
func openLog(path string) (*os.File, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errNoLog
	case err == nil && !st.Mode().IsRegular():
		return nil,
			errors.New("not a regular file, so it stores no lines; give the file that its reader writes: --log FILE")
	}
	return os.Open(path)
}
