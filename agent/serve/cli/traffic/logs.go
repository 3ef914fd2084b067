package traffic

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/base/plural"
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

--verify checks that the audit log is complete and unchanged: each event has a number and the hash
of the previous line. It reports missing, changed, and inserted lines, and forged and missing files,
and exits with 2 if there are any. The running agent also reports the last event, so a cut end is
found; with --file, --record names its file (audit-chain.json of paths.state).

With -o json, each line is a JSON object: {"file", "entry"} for JSON lines of access logs, {"file",
"line"} for other lines, and the event itself for the audit log. On a terminal, control characters
are escaped; otherwise lines are unchanged.`,
		Example: `  nearside logs -f --dataplane web
  nearside logs access --since 10m --status 5xx
  nearside logs dns -f
  nearside logs audit --since 7d -o json | jq -r .user.username
  nearside logs audit --verify
  nearside logs --file /var/log/nearside/access/web.log --status 500-503`,
		Args:      command.Args(0, 1, "at most one of access, audit, and dns"),
		ValidArgs: []string{logAccess, logAudit, logDNS},
	}
	command.MeshFlag(env, cmd)
	cmd.Flags().Lookup("mesh").Usage = "mesh (default: all; with --dataplane: default)"
	flags := cmd.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "wait for more lines")
	flags.StringVar(&f.since, "since", "", "omit older lines: a duration or a time")
	command.DataplaneFlag(env, cmd, &f.dataplane, "read only the access logs of this dataplane")
	flags.StringVar(&f.status, "status", "", "show only lines with these status codes")
	flags.StringArrayVar(&f.fields, "status-field", nil, "JSON field with the status code; repeatable")
	flags.StringArrayVar(&f.files, "file", nil, "read this file without an agent; repeatable")
	f.format = new(string) // a stream of lines has fewer formats
	f.verify.add(flags)
	command.ChoiceFlag(cmd, f.format, "output", "o", "format: ", "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.what = logAccess
		if len(args) > 0 {
			f.what = args[0]
		}
		if f.dataplane != "" || cmd.Flags().Changed("mesh") {
			f.mesh = env.Mesh
		}
		filter, err := f.filter()
		if err == nil {
			err = f.verify.check(&f, cmd.Flags().Changed("mesh"))
		}
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		if f.verify.on {
			return f.verifyAudit(ctx, env)
		}
		paths, formats := f.files, map[string]*traffic.Formats(nil)
		if len(paths) == 0 {
			if paths, formats, err = f.find(ctx, env, filter); err != nil {
				return err
			}
		}
		return f.read(ctx, env, paths, formats, filter)
	}
	return cmd
}

// filter validates the flags and returns the line filter.
func (f *logsFlags) filter() (*traffic.Filter, error) {
	switch {
	case f.what == logDNS:
		if f.dataplane != "" || f.mesh != "" || f.status != "" || len(f.fields) > 0 {
			return nil,
				command.Usagef("--dataplane, --mesh, --status, and --status-field cannot be used with the DNS query log")
		}
	case f.what != logAccess && f.what != logAudit:
		return nil, command.Usagef("unknown log %q; use one of access, audit, dns", f.what)
	case f.what == logAudit && f.dataplane != "":
		return nil, command.Usagef("--dataplane cannot be used with the audit log")
	case f.what == logAudit && len(f.fields) > 0:
		return nil, command.Usagef("--status-field cannot be used with the audit log")
	case len(f.fields) > 0 && f.status == "":
		return nil, command.Usagef("--status-field requires --status")
	case len(f.files) > 0 && f.dataplane != "":
		return nil, command.Usagef("--dataplane selects files of the agent, and --file names a file; give one of them")
	case len(f.files) > 0 && f.what == logAccess && f.mesh != "":
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

// Limits for asking Envoys to flush their logs.
const (
	maxFlushes = 16
	flushWait  = 2 * time.Second
)

// find asks the agent for the files to read, and for the formats of their lines if the filter needs
// them.
func (f *logsFlags) find(ctx context.Context, env *command.Env,
	filter *traffic.Filter) ([]string, map[string]*traffic.Formats, error) {
	if f.what == logDNS {
		paths, err := f.findDNS(ctx, env)
		return paths, nil, err
	}
	got, err := env.Client().AccessLogs(ctx)
	if err != nil {
		var unreachable *client.UnreachableError
		if errors.As(err, &unreachable) {
			return nil, nil, command.Hinted(err, unreachable.Hint()+"; --file PATH reads a file without an agent")
		}
		return nil, nil, err
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
	if !needsFormats(filter) {
		return paths, nil, nil
	}
	return paths, logFormats(ctx, env, got.Items, paths), nil
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

// read prints the lines of files. If several files cannot be read, a permission error determines
// the exit code.
func (f *logsFlags) read(ctx context.Context, env *command.Env, paths []string, formats map[string]*traffic.Formats,
	filter *traffic.Filter) error {
	var failed error
	if formats == nil {
		formats = map[string]*traffic.Formats{}
	}
	err := traffic.Show(ctx, traffic.ShowOptions{
		Paths: paths, Follow: f.follow, More: f.more(ctx, env, slices.Clone(paths), formats, filter), Filter: *filter,
		Formats: formats, JSON: *f.format == "json", Escape: env.ToTerminal, Out: text.Verbatim(env.Stdout),
		Note: func(content string) { text.Println(env.Stderr, content) },
		Failed: func(path string, err error) {
			err = unreadable(path, err, f.what)
			if failed != nil && command.ExitCode(err) == command.ExitPermission {
				failed, err = err, failed
			}
			if failed == nil {
				failed = err
				return
			}
			command.Report(env.Stderr, err)
		},
	})
	if err != nil {
		return err
	}
	return failed
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

// wants reports whether the flags select a stream.
func (f *logsFlags) wants(s *api.LogStream) bool {
	return (f.mesh == "" || s.Mesh == f.mesh) && (f.dataplane == "" || s.Dataplane == f.dataplane)
}

// needsFormats reports whether a filter needs the formats of lines.
func needsFormats(filter *traffic.Filter) bool { return filter.Codes != nil || !filter.Since.IsZero() }

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
		if known = append(known, unknown...); len(unknown) > 0 && needsFormats(filter) {
			within, stop := context.WithTimeout(ctx, traffic.MoreEach)
			maps.Copy(formats, logFormats(within, env, got.Items, unknown))
			stop()
		}
		return paths
	}
}
