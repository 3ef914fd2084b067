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
	http   bool // the default port is 80
}

func (f *flowFlags) add(env *command.Env, cmd *cobra.Command) {
	command.MeshFlag(env, cmd)
	f.files.Add(cmd, "compute offline from these resources")
	flags := cmd.Flags()
	flags.StringVar(&f.target.From, "from", "", "name of the dataplane whose workload connects (required)")
	flags.StringVar(&f.target.To, "to", "",
		"destination HOST:PORT; the host is an address, a mesh name, or any other name. "+
			"A mesh name with one port needs no port (required)")
	flags.StringVar(&f.target.IP, "ip", "", "address that the workload uses for the name in --to")
	flags.BoolVar(&f.target.Shadow, "shadow", false,
		"also answer with shadow policies in force, and show the first difference")
	command.CompleteDataplanes(env, cmd, "from", &env.Mesh)
	_ = cmd.RegisterFlagCompletionFunc("to", completeHosts(env)) // fails only for an undefined flag
	f.format = command.OutputFlag(cmd, "text", "json", "yaml")
}

// flow sets the target of a question about a connection or request, and prints the answer.
func flow[Q any](cmd *cobra.Command, env *command.Env, f *flowFlags, q *Q, target *explain.Target,
	online func(*client.Client, context.Context, Q) (*explain.Flow, error),
	compute func(*offline.Offline, string, Q) (*explain.Flow, error)) error {
	switch {
	case f.target.From == "":
		return command.Usagef("--from is required: the dataplane whose workload connects")
	case f.target.To == "":
		return command.Usagef("--to is required: HOST:PORT")
	}
	var err error
	if f.target.From, err = command.DataplaneName(cmd.Context(), env, &f.files, f.target.From); err != nil {
		return err
	}
	f.target.Mesh = env.Mesh
	if f.target.To, err = withPort(cmd.Context(), env, f); err != nil {
		return err
	}
	*target = f.target
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
		Short: "Explain what happens to a connection",
		Long: `Follows a connection of a workload through its proxy, and through the proxy of the server if that is
a dataplane of the mesh. The output shows the listener, what the listener filters detect, how the
filter chain is selected and which chains are eliminated, the filters with their verdict about the
client, the clusters, the access logs, and the policies behind each step. The verdict comes first.
If the connection is denied, the output ends with the smallest policy change that allows it, which
was tested.

By default, the client sends plain bytes that are not HTTP. With --tls it opens a TLS session; --sni
and --alpn imply --tls. Without --sni, the server name is the host of --to, if that is a name; --sni
"" sends no server name. With --silent, the client waits for the server to speak first, like MySQL
and SMTP clients. The answer for plain bytes says when such a client would wait.

The agent answers for the config that the Envoy has. For a resource that the Envoy rejected, or that
the agent withheld, this is the last accepted version. The answer says so, and how long older
connections may still use the previous filter chains.

The exit code is 0 if the connection is allowed, and 2 if it is denied or closed. With -f, the
answer comes only from these resources, without an agent; NEARSIDE_NODE_ZONE sets the zone.`,
		Example: `  nearside explain connection --from web --to backend:80
  nearside explain connection --from web --to db.example.com:3306 --silent
  nearside explain connection --from web --to api.example.com:443 --tls \
    --ip 203.0.113.7
  nearside explain connection --from web --to 203.0.113.7:443 \
    --sni api.example.com -f resources/ -o json`,
		Args: command.Args(0, 0, "no arguments; flags describe the connection"),
	}
	f.add(env, cmd)
	cmd.Flags().BoolVar(&q.TLS, "tls", false, "the client opens a TLS session")
	cmd.Flags().BoolVar(&q.Silent, "silent", false, "the client waits for the server to speak first")
	cmd.Flags().StringVar(&sni, "sni", "", "server name of the TLS handshake")
	cmd.Flags().StringSliceVar(&q.ALPN, "alpn", nil,
		"application protocols of the TLS handshake in order of preference, such as h2,http/1.1")
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
		Short: "Explain what happens to an HTTP request",
		Long: `Follows an HTTP request of a workload through its proxy and the proxy of the server. The workload
does not use TLS. In addition to the output of "explain connection", it shows the HTTP filters, the
virtual host, the route, and the clusters with their weights, each with the path, host, and headers
that it receives. It also shows mirrored requests, the Location of a redirect, and faults, limits,
timeouts, and retries with their policies.

The Host of the request is the host of --to; --header host=NAME overrides it.

The exit code is 0 if the request is allowed, and 2 if it is denied or the connection is closed.
With -f, the answer comes only from these resources, without an agent; NEARSIDE_NODE_ZONE sets the
zone.`,
		Example: `  nearside explain request --from web --to backend:80 --path /orders
  nearside explain request --from web --to backend:80 \
    --header connection=upgrade --header upgrade=websocket
  nearside explain request --from web --to backend:80 --method POST \
    --header x-user=7 --shadow
  nearside explain request --from web --to www.example.com:80 -f resources/`,
		Args: command.Args(0, 0, "no arguments; flags describe the connection"),
	}
	f.add(env, cmd)
	f.http = true
	cmd.Flags().StringVar(&q.Method, "method", "GET", "HTTP method")
	cmd.Flags().StringVar(&q.Path, "path", "/", "path with query")
	cmd.Flags().StringArrayVar(&headers, "header", nil, "header as name=value; repeatable")
	cmd.Flags().BoolVar(&q.HTTP2, "http2", false, "the client uses HTTP/2")
	cmd.Flags().BoolVar(&q.HTTP10, "http10", false, "the client uses HTTP/1.0")
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
