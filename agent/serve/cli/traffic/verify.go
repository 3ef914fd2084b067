package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/auditlog"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// verifyFlags holds the flags of logs audit --verify.
type verifyFlags struct {
	on     bool
	record string
}

func (v *verifyFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&v.on, "verify", false, "check the audit log for missing, changed, and forged lines and files")
	flags.StringVar(&v.record, "record", "", "file with the agent's record of the audit log, for --verify with --file")
}

// check reports flags that cannot be combined.
func (v *verifyFlags) check(f *logsFlags, mesh bool) error {
	switch {
	case v.record != "" && (!v.on || len(f.files) == 0):
		return command.Usagef("--record requires --verify and --file")
	case !v.on:
		return nil
	case f.what != logAudit:
		return command.Usagef("--verify requires the audit log: nearside logs audit --verify")
	case f.follow || f.since != "" || f.status != "" || mesh:
		return command.Usagef("--verify reads the whole audit log, so --follow, --since, --status, and --mesh cannot be " +
			"used with it")
	case len(f.files) > 1:
		return command.Usagef("--verify reads one log; give --file once")
	}
	return nil
}

// verifyAudit verifies the audit log and prints the result.
func (f *logsFlags) verifyAudit(ctx context.Context, env *command.Env) error {
	o, err := f.verifyOptions(ctx, env)
	if err != nil {
		return err
	}
	r, err := auditlog.Verify(o)
	if err != nil {
		return unreadable(o.Path, err, logAudit)
	}
	if *f.format == "json" {
		enc := json.NewEncoder(text.Verbatim(env.Stdout))
		enc.SetIndent("", "  ")
		if err := enc.Encode(r); err != nil {
			return err
		}
	} else {
		printReport(env, o.Path, r)
	}
	if !r.Intact {
		return command.Silent(command.ExitNo)
	}
	return nil
}

// verifyOptions returns the log of the flags, or that of the running agent.
func (f *logsFlags) verifyOptions(ctx context.Context, env *command.Env) (o auditlog.VerifyOptions, err error) {
	o.Now = time.Now()
	if len(f.files) > 0 {
		o.Path = f.files[0]
		if f.verify.record == "" {
			return o, nil
		}
		if o.Record, err = auditlog.ReadRecord(f.verify.record); errors.Is(err, fs.ErrPermission) {
			return o, command.Exit(command.ExitPermission, command.Hinted(fmt.Errorf("%s: permission denied",
				f.verify.record), "run the command as root"))
		}
		return o, err
	}
	if err := env.OnNode("logs audit --verify without --file"); err != nil {
		return o, err
	}
	got, err := env.Client().AccessLogs(ctx)
	switch {
	case err != nil:
		return o, withoutAgent(err)
	case got.AuditFile == "":
		return o, noAudit()
	}
	o.Path = got.AuditFile
	if o.Record, err = recordOf(got.AuditChain); err != nil || o.Record == nil {
		return o, err
	}
	o.After = func() *audit.Record {
		got, err := env.Client().AccessLogs(ctx)
		if err != nil {
			return nil
		}
		r, _ := recordOf(got.AuditChain)
		return r
	}
	return o, nil
}

// recordOf returns the record of an agent.
func recordOf(c *api.AuditChain) (*audit.Record, error) {
	if c == nil {
		return nil, nil
	}
	r := &audit.Record{First: c.First, Last: audit.Link{Number: c.Last}, Pending: c.Pending}
	if err := r.Last.Hash.UnmarshalText([]byte(c.Hash)); err != nil {
		return nil, fmt.Errorf("auditChain.hash: %.64q is not a SHA-256 in hex: %w", c.Hash, err)
	}
	return r, nil
}

// printReport prints a report as text.
func printReport(env *command.Env, path string, r *audit.Report) {
	for _, x := range r.Findings {
		at := x.File
		if x.Line > 0 {
			at += ":" + strconv.Itoa(x.Line)
		}
		if x.Time != "" {
			at += " (" + x.Time + ")"
		}
		text.Printf(env.Stdout, "%s: %s\n", at, x.Detail)
	}
	if r.More > 0 {
		text.Printf(env.Stdout, "and %s\n", plural.Form(r.More, "1 more finding", "%d more findings"))
	}
	if r.Plain > 0 {
		text.Printf(env.Stdout, "%s, because an older version wrote them\n",
			plural.Form(r.Plain, "1 line before the chain has no hash", "%d lines before the chain have no hashes"))
	}
	if r.Cut > 0 {
		text.Printf(env.Stdout, "%s by a killed agent; each was followed by a start of the agent\n",
			plural.Form(r.Cut, "1 line was left incomplete", "%d lines were left incomplete"))
	}
	state := "intact"
	if n := len(r.Findings) + r.More; n > 0 {
		state = plural.Form(n, "1 finding", "%d findings")
	}
	text.Printf(env.Stdout, "%s: %s; %s in %s", filepath.Base(path), state,
		plural.Form(r.Events, "1 event", "%d events"), plural.Form(r.Files, "1 file", "%d files"))
	if r.Events > 0 {
		text.Printf(env.Stdout, ", numbers %d to %d, last hash %s", r.First, r.Last.Number, r.Last.Hash.String())
	}
	if !r.Compared {
		text.Printf(env.Stdout, "; the end was not compared with the agent's record")
	}
	text.Printf(env.Stdout, "\n")
}
