package proxies

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// flowFlags are the flags common to connections and requests.
type flowFlags struct {
	files  command.FileFlags
	target explain.Target
	format *string
}

func (f *flowFlags) add(env *command.Env, cmd *cobra.Command) {
	command.MeshFlag(env, cmd)
	f.files.Add(cmd, "compute offline from these resources")
	flags := cmd.Flags()
	flags.StringVar(&f.target.From, "from", "", "name of the dataplane whose workload dials; required")
	flags.StringVar(&f.target.To, "to", "",
		"what it dials, HOST:PORT; the host is an address, a name of the mesh or any other name; required")
	flags.StringVar(&f.target.IP, "ip", "", "address that the workload dials for the name in --to")
	flags.BoolVar(&f.target.Shadow, "shadow", false,
		"also answer with the shadow policies in force, and show the first difference")
	command.CompleteDataplanes(env, cmd, "from", &env.Mesh)
	f.format = command.OutputFlag(cmd, "text", "json", "yaml")
}

// flow sets the target of a question about a connection or request, and prints the answer.
func flow[Q any](cmd *cobra.Command, env *command.Env, f *flowFlags, q *Q, target *explain.Target,
	online func(*client.Client, context.Context, Q) (*explain.Flow, error),
	compute func(*offline.Offline, string, Q) (*explain.Flow, error)) error {
	switch {
	case f.target.From == "":
		return command.Usagef("--from is required: the dataplane whose workload dials")
	case f.target.To == "":
		return command.Usagef("--to is required: HOST:PORT")
	}
	f.target.Mesh = env.Mesh
	*target = f.target
	if len(f.files.Paths) == 0 {
		command.AboutDataplane(env, f.target.From)
	}
	x, err := command.Explain(cmd.Context(), env, &f.files, *q, online, compute)
	return command.Show(env, *f.format, text.Flow,
		func(x *explain.Flow) bool { return x.Verdict != "allowed" })(x, flowError(err))
}

// flowError turns an error about the question into a usage error.
func flowError(err error) error {
	var bad *explain.QuestionError
	if errors.As(err, &bad) {
		return command.Usagef("--%s: %s", flagOf(bad.Field), bad.Reason)
	}
	var p *api.Error
	if errors.As(err, &p) && p.Status == 400 && len(p.InvalidParameters) == 1 {
		_, field, ok := strings.Cut(p.InvalidParameters[0].Field, ".")
		if ok {
			return command.Usagef("--%s: %s", flagOf(field), p.InvalidParameters[0].Reason)
		}
	}
	return err
}

// flagOf returns the flag for a field of a question.
func flagOf(field string) string {
	if strings.HasPrefix(field, "headers[") {
		return "header"
	}
	return field
}

func explainConnectionCommand(env *command.Env) *cobra.Command {
	var f flowFlags
	var q explain.ConnectionQuestion
	var sni string
	cmd := &cobra.Command{
		Use:   "connection --from DATAPLANE --to HOST:PORT",
		Short: "Say what becomes of a connection, and why",
		Long: `Follows a connection of a workload through its proxy, and through that of the server where it is a dataplane of the
mesh: which listener takes it, what the listener filters see, at each level of the choice of a filter chain what was
chosen, what was eliminated and why, the filters with the verdict about the client, the clusters, the access logs, and the
policies behind each step. The verdict comes first; a denied connection ends with the smallest change of a policy
that allows it, which was tried.

The client sends plain bytes that are not HTTP; with --tls it opens a TLS session, which --sni and --alpn imply. Without
--sni the server name is the host of --to, where that is a name; --sni "" sends none. With --silent the client sends nothing
and waits for the server to speak, as those of MySQL and SMTP do; the answer about plain bytes says when such a client
would wait.

An agent answers by what the Envoy has: of what it rejected or what was withheld from it, the form that it accepted last.
It says so, and until when connections from before a change may use the old filter chains.

The exit code is 0 when the connection is allowed and 2 when it is denied or closed. With -f the answer is computed from
these resources alone, without any agent and by the same code; the zone is then NEARSIDE_NODE_ZONE.`,
		Example: `  nearside explain connection --from web --to backend:80
  nearside explain connection --from web --to db.example.com:3306 --silent
  nearside explain connection --from web --to api.example.com:443 --tls --ip 203.0.113.7
  nearside explain connection --from web --to 203.0.113.7:443 --sni api.example.com -f resources/ -o json`,
		Args: command.Args(0, 0, "no arguments: the question is in the flags"),
	}
	f.add(env, cmd)
	cmd.Flags().BoolVar(&q.TLS, "tls", false, "the client speaks TLS")
	cmd.Flags().BoolVar(&q.Silent, "silent", false, "the client waits for the server to speak")
	cmd.Flags().StringVar(&sni, "sni", "", "server name of the TLS handshake")
	cmd.Flags().StringSliceVar(&q.ALPN, "alpn", nil,
		"application protocols of the TLS handshake, the preferred first (h2,http/1.1)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("sni") {
			q.SNI, q.TLS = &sni, true
		}
		q.TLS = q.TLS || len(q.ALPN) > 0
		return flow(cmd, env, &f, &q, &q.Target, (*client.Client).ExplainConnection, (*offline.Offline).ExplainConnection)
	}
	return cmd
}

func explainRequestCommand(env *command.Env) *cobra.Command {
	var f flowFlags
	var q explain.RequestQuestion
	var headers []string
	cmd := &cobra.Command{
		Use:   "request --from DATAPLANE --to HOST:PORT",
		Short: "Say what becomes of an HTTP request, and why",
		Long: `Follows an HTTP request of a workload, without TLS of its own, through its proxy and that of the server: all that
explain connection shows, and the HTTP filters, the virtual host, the route and the clusters with their weights, each with the
path, host and headers that it gets; copies that other clusters get, the Location of a redirect; and faults, limits,
timeouts and retries with the policies behind them.

The Host of the request is that of --to; --header host=NAME sends another one. The exit code is 0 when the request is
allowed and 2 when it is denied or the connection is closed. With -f the answer is computed from these resources alone,
without any agent and by the same code; the zone is then NEARSIDE_NODE_ZONE.`,
		Example: `  nearside explain request --from web --to backend:80 --path /orders
  nearside explain request --from web --to backend:80 --header connection=upgrade --header upgrade=websocket
  nearside explain request --from web --to backend:80 --method POST --header x-user=7 --shadow
  nearside explain request --from web --to www.example.com:80 -f resources/ -o json`,
		Args: command.Args(0, 0, "no arguments: the question is in the flags"),
	}
	f.add(env, cmd)
	cmd.Flags().StringVar(&q.Method, "method", "GET", "method")
	cmd.Flags().StringVar(&q.Path, "path", "/", "path, with the query")
	cmd.Flags().StringArrayVar(&headers, "header", nil, "header as name=value; repeatable")
	cmd.Flags().BoolVar(&q.HTTP2, "http2", false, "the client speaks HTTP/2")
	cmd.Flags().BoolVar(&q.HTTP10, "http10", false, "the client speaks HTTP/1.0")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, h := range headers {
			name, value, ok := strings.Cut(h, "=")
			if !ok {
				return command.Usagef("--header %q is not name=value", h)
			}
			q.Headers = append(q.Headers, explain.Header{Name: name, Value: value})
		}
		return flow(cmd, env, &f, &q, &q.Target, (*client.Client).ExplainRequest, (*offline.Offline).ExplainRequest)
	}
	return cmd
}
