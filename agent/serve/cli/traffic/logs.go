package traffic

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/compute/logfields"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// Logs that can be read.
const (
	logAccess = "access"
	logAudit  = "audit"
	logDNS    = "dns"
)

// logsFlags holds the flags of logs.
type logsFlags struct {
	what      string
	dataplane string
	mesh      string // empty: all
	files     []string
	follow    bool
	since     string
	status    string
	fields    []string
	verify    verifyFlags
	where     []string
	resources []string // files with the formats of lines
	all       bool     // all nodes of the pool
	format    *string
}

func logsCommand(env *command.Env) *cobra.Command {
	var f logsFlags
	cmd := &cobra.Command{
		Use:   "logs [access|audit|dns]",
		Short: "Read access logs, the audit log, and the DNS query log",
		Long: `Reads the log files that the agent of this node writes, including rotated and compressed ones,
oldest line first: access logs by default, the audit log of the API, or the DNS query log
(dns.queryLog). Access logs are the files of receivers and of MeshAccessLog backends with rotation.
Several files follow one another. --file reads files without an agent, each with its rotated files.

--since accepts a duration (10m, 2h, 7d) or a time (RFC 3339). --status accepts codes and ranges
(5xx, 503, 200-299). The command finds time and code with the proxies' log formats, from
%START_TIME% and %RESPONSE_CODE%, as far as clients cannot shift these fields. In other lines, and
without an agent, the time is %START_TIME% at the start of a text line, or the JSON field time,
start_time, timestamp, @timestamp, or ts. The code is that of the default format, or the JSON field
response_code, responseCode, status_code, status, or code; --status-field names other fields. Lines
whose time or code is unknown are omitted, and counted on standard error. With -f, lines without a
time appear after all older lines are read.

--where FIELD OPERATOR VALUE shows only lines with such a value; all conditions must hold. The
operators are = and !=, ~ and !~ (a regular expression matches a part of the value), and >, >=, <,
and <= (numbers, durations, sizes, times). Fields are time, status, method, path, protocol,
authority, agent, forwarded, request, duration, upstream-time, received, sent, flags, details,
service, source, mesh, client, upstream, cluster, route, sni, each operator of a format, such as
"REQ(X-TENANT)", and each key of a JSON line (.KEY if it has the name of another field). The formats
are those of the proxies and policies of the agent, and of the resources in --resources. Lines without
the field, or whose value a client may have forged, are omitted and counted. The audit log has no
such fields.

--verify checks that the audit log is complete and unchanged: each event has a number and the hash
of the previous line. It reports missing, changed, and inserted lines, and forged and missing files,
and exits with 2 if there are any. The running agent also reports the last event, so a cut end is
found; with --file, --record names its file (audit-chain.json of paths.state).

--all-nodes reads the logs of all nodes of the pool, which requires the verb read-logs. Other nodes
answer if accessLog.share is set there. The output is limited to 1000 lines, and without --since to
the last hour. Nodes without an answer are named, and the exit code is 1.

With -o json, each line is a JSON object: {"file", "entry"} for JSON lines of access logs, {"file",
"line"} for other lines, and the event itself for the audit log. On a terminal, control characters
are escaped; otherwise lines are unchanged.`,
		Example: `  nearside logs -f --dataplane web
  nearside logs access --since 10m --status 5xx
  nearside logs --where 'path~^/api/' --where 'duration>500ms' -o json
  nearside logs dns -f
  nearside logs audit --since 7d -o json | jq -r .user.username
  nearside logs audit --verify
  nearside logs --file /var/log/nearside/access/web.log --status 500-503`,
		Args:      command.Args(0, 1, "at most one of access, audit, and dns"),
		ValidArgs: []string{logAccess, logAudit, logDNS},
	}
	f.add(env, cmd)
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "wait for more lines")
	f.format = new(string) // a stream of lines has fewer formats
	f.verify.add(cmd.Flags())
	command.ChoiceFlag(cmd, f.format, "output", "o", "format: ", "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.what = logAccess
		if len(args) > 0 {
			f.what = args[0]
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		filter, err := f.validate(env, cmd)
		if err == nil {
			err = f.verify.check(&f, cmd.Flags().Changed("mesh"))
		}
		if err != nil {
			return err
		}
		if f.verify.on {
			return f.verifyAudit(ctx, env)
		}
		if f.all {
			return f.readNodes(ctx, env)
		}
		paths, formats, err := f.locate(ctx, env, filter)
		if err != nil {
			return err
		}
		return f.read(ctx, env, paths, formats, filter)
	}
	cmd.AddCommand(statsCommand(env))
	return cmd
}

// add adds the flags that select lines.
func (f *logsFlags) add(env *command.Env, cmd *cobra.Command) {
	command.MeshFilter(env, cmd,
		"mesh (default: all; with --dataplane: "+command.EnvMesh+", else the only mesh, else default)")
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "omit older lines: a duration or a time")
	command.DataplaneFlag(env, cmd, &f.dataplane, "read only the access logs of this dataplane")
	flags.StringVar(&f.status, "status", "", "show only lines with these status codes")
	flags.StringArrayVar(&f.fields, "status-field", nil, "JSON field with the status code; repeatable")
	flags.StringArrayVar(&f.where, "where", nil,
		"show only lines with such a value, for example 'duration>500ms'; repeatable")
	flags.StringArrayVar(&f.files, "file", nil, "read this file without an agent; repeatable")
	flags.BoolVar(&f.all, "all-nodes", false, "read the logs of all nodes of the pool, over the API")
	flags.StringArrayVar(&f.resources, "resources", nil,
		"read the formats of lines from the resources in this file or folder; repeatable")
}

// validate validates the flags that add has added.
func (f *logsFlags) validate(env *command.Env, cmd *cobra.Command) (*traffic.Filter, error) {
	f.mesh = env.Mesh
	filter, err := f.filter()
	if err == nil && f.dataplane != "" {
		f.dataplane, err = command.DataplaneName(cmd.Context(), env, nil, f.dataplane)
		f.mesh = env.Mesh
		return filter, withoutAgent(err)
	}
	return filter, err
}

// locate finds the files with the formats of their lines.
func (f *logsFlags) locate(ctx context.Context, env *command.Env, filter *traffic.Filter) ([]string,
	map[string]*traffic.Formats, error) {
	if len(f.files) == 0 {
		return f.find(ctx, env, filter)
	}
	formats := map[string]*traffic.Formats{}
	if len(f.resources) > 0 {
		templates, err := f.templates(ctx, env)
		if err != nil {
			return nil, nil, err
		}
		for _, path := range f.files {
			formats[path], _ = traffic.NewFormats(nil, templates)
		}
	}
	return f.files, formats, nil
}

// filter validates the flags and returns the line filter.
func (f *logsFlags) filter() (*traffic.Filter, error) {
	switch {
	case f.what == logDNS:
		if f.dataplane != "" || f.mesh != "" || f.status != "" || len(f.fields) > 0 {
			return nil,
				command.Usagef("--dataplane, --mesh, --status, and --status-field cannot be used with the DNS query log")
		}
	case f.what != logAccess && f.what != logAudit && f.what != logStats:
		return nil, command.Usagef("unknown log %q; use one of access, audit, dns", f.what)
	case f.what == logAudit && f.dataplane != "":
		return nil, command.Usagef("--dataplane cannot be used with the audit log")
	case f.what == logAudit && len(f.fields) > 0:
		return nil, command.Usagef("--status-field cannot be used with the audit log")
	case f.what == logAudit && len(f.where) > 0:
		return nil, command.Usagef("--where cannot be used with the audit log; use -o json and jq")
	case f.what == logAudit && len(f.resources) > 0:
		return nil, command.Usagef("--resources has formats of access logs, and cannot be used with the audit log")
	case len(f.where) > logfields.MaxConditions:
		return nil, command.Usagef("--where is given %d times; at most %d are allowed", len(f.where), logfields.MaxConditions)
	case len(f.fields) > 0 && f.status == "":
		return nil, command.Usagef("--status-field requires --status")
	case len(f.files) > 0 && f.dataplane != "":
		return nil, command.Usagef("--dataplane selects files of the agent, and --file names a file; give one of them")
	case len(f.files) > 0 && f.what != logAudit && f.mesh != "":
		return nil, command.Usagef("--mesh cannot be used with --file: lines of access logs do not name their mesh")
	}
	filter := &traffic.Filter{Audit: f.what == logAudit, Fields: f.fields}
	if filter.Audit {
		filter.Mesh = f.mesh
	}
	var err error
	if f.since != "" {
		if filter.Since, err = traffic.ParseSince(f.since, time.Now()); err != nil {
			return nil, command.Usagef("--since %w", err)
		}
	}
	if f.status != "" {
		if filter.Codes, err = traffic.ParseCodes(f.status); err != nil {
			return nil, command.Usagef("--status: %w", err)
		}
	}
	for _, text := range f.where {
		c, err := logfields.ParseCondition(text)
		if err != nil {
			return nil, command.Usagef("--where %w", err)
		}
		filter.Where = append(filter.Where, c)
	}
	for i, path := range f.files {
		if path == "" || strings.HasSuffix(path, "/") {
			return nil, command.Usagef("--file %q is not the path of a file", path)
		}
		if strings.HasSuffix(path, ".gz") {
			return nil, command.Usagef("--file %s is compressed; give the file that it was rotated from, "+
				"which includes its rotated files", path)
		}
		if f.files[i], err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	return filter, nil
}

// read prints the lines of files.
func (f *logsFlags) read(ctx context.Context, env *command.Env, paths []string, formats map[string]*traffic.Formats,
	filter *traffic.Filter) error {
	if formats == nil {
		formats = map[string]*traffic.Formats{}
	}
	failures := &failures{env: env, what: f.what}
	err := traffic.Show(ctx, traffic.ShowOptions{
		Paths: paths, Follow: f.follow, More: f.more(ctx, env, slices.Clone(paths), formats, filter), Filter: *filter,
		Formats: formats, JSON: *f.format == "json", Escape: env.ToTerminal, Out: text.Verbatim(env.Stdout),
		Note: func(content string) { text.Println(env.Stderr, content) }, Failed: failures.add,
	})
	if err != nil {
		return err
	}
	return failures.first
}

// failures reports files that cannot be read. first determines the exit code: a permission error,
// or the first error.
type failures struct {
	env   *command.Env
	what  string
	first error
}

func (f *failures) add(path string, err error) {
	err = unreadable(path, err, f.what)
	if f.first != nil && command.ExitCode(err) == command.ExitPermission {
		f.first, err = err, f.first
	}
	if f.first == nil {
		f.first = err
		return
	}
	command.Report(f.env.Stderr, err)
}

// unreadable explains why a file cannot be read.
func unreadable(path string, err error, what string) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return command.Exit(command.ExitPermission, command.Hinted(fmt.Errorf("%s: permission denied", path), "run the "+
			"command as root, or join the group that may read the file"+groupOf(path)+" and log in again"))
	case errors.Is(err, fs.ErrNotExist) && what == logAudit:
		return command.Hinted(fmt.Errorf("%s: there is no such file", path),
			"if auditLog.profile is None, the agent writes no audit log; see nearside status")
	case errors.Is(err, fs.ErrNotExist) && what == logDNS:
		return command.Hinted(fmt.Errorf("%s: there is no such file", path),
			"the agent logs queries if dns.queryLog.sample is above 0, and creates the file with the first one")
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: there is no such file", path)
	}
	return fmt.Errorf("%s: %w", path, command.Reason(err))
}

// groupOf returns the group of a file, or of its nearest accessible parent directory.
func groupOf(path string) string {
	for ; path != "/" && path != "."; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Gid != 0 {
			return fmt.Sprintf(" (gid %d)", st.Gid)
		}
		break
	}
	return ""
}
