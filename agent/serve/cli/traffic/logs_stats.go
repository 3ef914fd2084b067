package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/traffic"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// logStats counts the lines of access logs.
const logStats = "stats"

func statsCommand(env *command.Env) *cobra.Command {
	f := logsFlags{what: logStats}
	var by string
	cmd := &cobra.Command{
		Use:   logStats,
		Short: "Count requests in access logs by service, route, status, or client",
		Long: `Counts the lines of access logs by the value of a field, with rates, status codes, and latencies. It
reads the same files as nearside logs, and selects lines with the same flags.

--by takes the fields of --where. The route is %ROUTE_NAME% if the format has it, else the path
without its query. RATE is lines per second between the first and the last line, or since --since.
P50, P95, and P99 are durations in milliseconds, exact to 1 %. At most 1000 values are shown; lines
of others, and lines without a reliable value, are counted below the table.`,
		Example: `  nearside logs stats --by service --since 1h
  nearside logs stats --by route --where service=backend
  nearside logs stats --by client --status 5xx -o json`,
	}
	f.add(env, cmd)
	cmd.Flags().StringVar(&by, "by", "service", "field whose values are counted: service, route, status, client, …")
	format := command.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		f.what = logStats
		filter, err := f.validate(env, cmd)
		if err != nil {
			return err
		}
		if f.all {
			return f.statsOfNodes(ctx, env, *format, by)
		}
		paths, formats, err := f.locate(ctx, env, filter)
		if err != nil {
			return err
		}
		failures := &failures{env: env, what: f.what}
		got, err := traffic.Stats(ctx, traffic.StatsOptions{Paths: paths, Filter: *filter, Formats: formats, By: by,
			Note: func(content string) { text.Println(env.Stderr, content) }, Failed: failures.add})
		if err != nil {
			return command.Usagef("--by %w", err)
		}
		if failures.first != nil {
			return failures.first
		}
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("interrupted before all lines were read: %w", err)
		}
		return command.Show(env, *format, printLogStats)(got, nil)
	}
	return cmd
}

// statsOfNodes prints the counts of all nodes of the pool.
func (f *logsFlags) statsOfNodes(ctx context.Context, env *command.Env, format, by string) error {
	q, err := f.query()
	if err != nil {
		return err
	}
	q.Set("by", by)
	answer, err := env.Client().Raw(ctx, "/v1/logs", q)
	if err != nil {
		return err
	}
	var got api.LogStats
	if err := json.Unmarshal(answer, &got); err != nil {
		return fmt.Errorf("the answer of the agent is invalid; upgrade the older one of agent and command")
	}
	if err := command.Show(env, format, printLogStats)(&got, nil); err != nil {
		return err
	}
	return reportEnd(env, got.End)
}

// printLogStats writes a table of groups.
func printLogStats(w io.Writer, s *api.LogStats) {
	nodes := slices.ContainsFunc(s.Items, func(g api.LogGroup) bool { return g.Node != "" })
	headers := []string{strings.ToUpper(s.By), "LINES", "RATE", "STATUS", "P50", "P95", "P99", "SENT"}
	if nodes {
		headers = append([]string{"NODE"}, headers...)
	}
	t := text.NewTable(w, headers...)
	for i := range s.Items {
		g := &s.Items[i]
		var codes []string
		for _, class := range slices.Sorted(maps.Keys(g.Status)) {
			codes = append(codes, fmt.Sprintf("%s:%d", class, g.Status[class]))
		}
		ms := func(v *float64) string {
			if v == nil {
				return ""
			}
			return fmt.Sprintf("%.0f ms", *v)
		}
		cells := []string{g.Value, fmt.Sprint(g.Lines), fmt.Sprintf("%.2f/s", g.PerSecond), strings.Join(codes, " "),
			ms(g.P50), ms(g.P95), ms(g.P99), fmt.Sprint(g.Sent)}
		if nodes {
			cells = append([]string{g.Node}, cells...)
		}
		t.Row(cells...)
	}
	t.Flush()
	if s.Other > 0 {
		text.Printf(w, "lines of other values: %d\n", s.Other)
	}
	if s.Unknown > 0 {
		text.Printf(w, "lines without a reliable value: %d\n", s.Unknown)
	}
}
