package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// query returns the flags as parameters of GET /v1/logs.
func (f *logsFlags) query() (url.Values, error) {
	switch {
	case len(f.files) > 0 || f.follow || len(f.resources) > 0 || len(f.fields) > 0:
		return nil, command.Usagef("--all-nodes cannot be used with --file, --follow, --resources, and --status-field")
	case f.what == logDNS && f.mesh != "":
		return nil, command.Usagef("--mesh cannot be used with the DNS query log")
	}
	q := url.Values{"allNodes": {"true"}}
	for key, value := range map[string]string{"mesh": f.mesh, "dataplane": f.dataplane, "since": f.since,
		"status": f.status} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if f.what != logStats {
		q.Set("log", f.what)
	}
	for _, c := range f.where {
		q.Add("where", c)
	}
	return q, nil
}

// readNodes prints the lines of all nodes of the pool.
func (f *logsFlags) readNodes(ctx context.Context, env *command.Env) error {
	q, err := f.query()
	if err != nil {
		return err
	}
	answer, err := env.Client().Raw(ctx, "/v1/logs", q)
	if err != nil {
		return err
	}
	var end *api.LogEnd
	at := ""
	out := text.Verbatim(env.Stdout)
	for line := range bytes.Lines(answer) {
		var x struct {
			Node, File string
			Entry      json.RawMessage
			Line       *string
			End        *api.LogEnd
		}
		if json.Unmarshal(line, &x) != nil {
			return fmt.Errorf("the answer of the agent is invalid; upgrade the older one of agent and command")
		}
		shown := string(bytes.TrimSuffix(line, []byte("\n")))
		switch {
		case x.End != nil && x.Node == "":
			end = x.End
			continue
		case *f.format == "json":
		default:
			if from := x.Node + ": " + x.File; from != at && x.File != "" {
				at = from
				text.Println(env.Stderr, "==> "+from+" <==")
			}
			switch {
			case x.Line != nil:
				shown = *x.Line
			case x.Entry != nil:
				shown = string(x.Entry)
			}
		}
		if env.ToTerminal {
			shown = clip.Printable(shown)
		}
		if _, err := out.Write([]byte(shown + "\n")); err != nil {
			return err
		}
	}
	return reportEnd(env, end)
}

// reportEnd reports missing lines of an answer. A node without an answer is an error.
func reportEnd(env *command.Env, end *api.LogEnd) error {
	if end == nil {
		return fmt.Errorf("the answer of the agent has no end")
	}
	for _, n := range end.Notes {
		text.Println(env.Stderr, n)
	}
	switch end.More {
	case "limit":
		text.Println(env.Stderr, "there may be more lines; use --since, --status, and --where to select fewer")
	case "time":
		text.Println(env.Stderr, "not all lines were read in time; use --since to select fewer")
	}
	var missing []string
	for _, n := range end.Unanswered {
		missing = append(missing, n.Name+" ("+n.Reason+")")
	}
	if len(missing) > 0 {
		return fmt.Errorf("nodes without an answer: %s", strings.Join(missing, ", "))
	}
	return nil
}
