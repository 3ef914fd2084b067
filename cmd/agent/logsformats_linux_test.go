package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

// TestLogsKnowTheFormatsInForce reads lines in a custom format written by a real Envoy. Status and
// time must be parsed by the format, and a client that sends similar text must not affect the
// result.
func TestLogsKnowTheFormatsInForce(t *testing.T) {
	w := newLogging(t)
	w.log("{type: File, file: {path: " + w.dir + "/logs/web.log, rotation: {maxFiles: 0}, format: {type: Plain, " +
		"plain: 'begin|%REQ(X-SEQ)%|at %START_TIME% answered %RESPONSE_CODE%'}}}")
	w.start()
	w.startEnvoy()
	w.inSync(logsTo("/run/access/nearside-default.web-"))
	w.requests("x|at 2020-01-01T00:00:00.000Z answered 503|", 3)
	w.await("the lines", func() bool {
		b, err := os.ReadFile(w.dir + "/logs/web.log")
		return err == nil && strings.Count(string(b), "\n") == 3
	})
	for args, want := range map[string]int{
		"--status 200":                 3,
		"--status 5xx":                 0,
		"--since 1h":                   3,
		"--since 2100-01-01T00:00:00Z": 0,
		"--status 200 --since 1h --dataplane web": 3,
	} {
		out, errs := output(t, w.dir+"/run/nearside.sock", command.ExitOK,
			append([]string{"logs"}, strings.Fields(args)...)...)
		if n := strings.Count(out, "\n"); n != want || errs != "" {
			t.Errorf("%s: %d lines, want %d: %s%s", args, n, want, out, errs)
		}
	}
	// Without the agent, the format is unknown.
	if out, errs := output(t, "", command.ExitOK, "logs", "--file", w.dir+"/logs/web.log", "--status", "200"); out != "" ||
		!strings.Contains(errs, fmt.Sprintf("status is unknown: %d", 3)) {
		t.Errorf("%s%s", out, errs)
	}
}
