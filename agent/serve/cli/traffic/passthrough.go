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
		Short:   "Work with what leaves the mesh",
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
		Short: "Propose matches for the connections that a proxy has refused",
		Long: `Reads from access logs which connections to destinations outside of the mesh a proxy has refused, and proposes a
MeshPassthrough that lets them out: for TLS with a server name the domain and the port, else the address and the port.
The most frequent come first, with how many there were and when. Each match was tried; what the policies in force allow
by now is not proposed again. Look at every line before you apply it: clients choose the names that they send.

The logs are the files to which the proxy's config writes refused connections, as a MeshAccessLog with backends for the
target Mesh has it; --log names others with lines of the same formats, "-" is the standard input. A format needs
%RESPONSE_FLAGS% and %DOWNSTREAM_LOCAL_ADDRESS%, and %REQUESTED_SERVER_NAME% for domains. A format in which clients could
shift these values is refused.

The exit code is 0, also when there is nothing to propose. With -f config and answers are computed from these resources
alone, without any agent and by the same code; the zone is then NEARSIDE_NODE_ZONE.`,
		Example: `  nearside passthrough suggest --dataplane web
  nearside passthrough suggest --dataplane web --log /var/log/mesh/web.log --limit 10 > allow.yaml
  zcat web.log.*.gz | nearside passthrough suggest --dataplane web --log - --wildcards 5 -o json`,
		Args: command.Args(0, 0, "no arguments: the dataplane is in --dataplane"),
	}
	command.MeshFlag(env, cmd)
	f.files.Add(cmd, "compute offline from these resources")
	flags := cmd.Flags()
	command.DataplaneFlag(env, cmd, &f.options.Dataplane, "name of the dataplane whose proxy refused; required")
	flags.StringArrayVar(&f.logs, "log", nil,
		"file with lines of the log; repeatable (default: those of the proxy's config)")
	flags.IntVar(&f.options.Limit, "limit", 50, fmt.Sprintf("how many destinations to look at, 1 to %d", maxLimit))
	flags.IntVar(&f.options.Wildcards, "wildcards", 0, "join so many hosts of one domain into a match for all of its "+
		"hosts, at least 2, unless a name of a mesh is in it; 0 never does")
	flags.StringVar(&f.options.Name, "name", "", "name of the policy (default: after the first match)")
	f.format = command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch o := &f.options; {
		case o.Dataplane == "":
			return command.Usagef("--dataplane is required")
		case o.Limit < 1 || o.Limit > maxLimit:
			return command.Usagef("--limit is %d; 1 to %d is allowed", o.Limit, maxLimit)
		case o.Wildcards < 0 || o.Wildcards == 1:
			return command.Usagef("--wildcards is %d; 0, or at least 2, is allowed", o.Wildcards)
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
		return nil, command.Hinted(fmt.Errorf("the proxy of %s logs no refused connections", f.options.Dataplane),
			"a MeshAccessLog with backends for the target Mesh in spec.to logs them, "+
				"where passthrough is closed or has matches")
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
			errors.New("it is not a regular file, and keeps no lines; give those that its reader has kept: --log FILE")
	}
	return os.Open(path)
}
