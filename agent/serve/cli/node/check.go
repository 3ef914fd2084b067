package node

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/envoybin"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// States of a check, as printed.
const (
	CheckOK   = "ok"
	checkWarn = "WARN" // works, but needs attention
	checkFail = "FAIL"
)

// selfCheck is the result of one check.
type selfCheck struct {
	Name    string `json:"name"`  // the class, for a problem of the agent
	State   string `json:"state"` // ok, WARN or FAIL
	Reason  string `json:"reason"`
	Hint    string `json:"hint,omitempty"`    // how to fix it
	Command string `json:"command,omitempty"` // the first command to run
}

// selfTest is the document of "check -o json".
type selfTest struct {
	OK     bool        `json:"ok"` // no check failed
	Checks []selfCheck `json:"checks"`
}

func (t *selfTest) add(state, name, hint, reason string, args ...any) {
	if state == CheckOK {
		hint = ""
	}
	t.OK = t.OK && state != checkFail
	t.Checks = append(t.Checks, selfCheck{Name: name, State: state, Reason: fmt.Sprintf(reason, args...), Hint: hint})
}

func checkCommand(env *command.Env) *cobra.Command {
	var askEnvoy bool
	var b bootstrapTest
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Test the agent and its environment",
		Long: `Tests the running agent and its sockets. Each check prints one line: "ok", "WARN" (works, but needs
attention), or "FAIL". A hint or the first command to run follows the lines that are not ok. The
problems are those that nearside status lists.

With ENVOY_BIN in the environment, this Envoy validates the config of each connected proxy, up to 64
proxies. --envoy uses the envoy on the PATH if ENVOY_BIN is unset.

With --bootstrap, it tests instead whether an Envoy with this bootstrap would get its config: the path
of the xDS socket and each directory on the way, the node id, the token, what xds.access and pins
say, the Dataplane, and the path of the admin socket. The tests have the rights of the user of
--user, which only root can give, or of the caller. Nothing is stored. Without a running agent, only
the tests of files run.

With -o json, the document is {"ok", "checks": [{"name", "state", "reason", "hint", "command"}]}.

The exit code is 2 if a check failed, and 69 if no agent responds, except with --bootstrap.`,
		Example: "  nearside check\n  nearside check -o json | jq '.checks[] | select(.state != \"ok\")'\n" +
			"  ENVOY_BIN=/usr/bin/envoy nearside check\n" +
			"  nearside check --bootstrap /etc/envoy/web.yaml --user envoy",
	}
	cmd.Flags().BoolVar(&askEnvoy, "envoy", false, "also validate with the envoy on the PATH, if ENVOY_BIN is unset")
	b.addFlags(cmd)
	return command.Asking(env, cmd, command.AsText, printChecks, func(ctx context.Context, _ []string) (*selfTest, error) {
		if b.file != "" {
			if err := env.OnNode("check --bootstrap"); err != nil {
				return nil, err
			}
			return b.run(ctx, env)
		}
		if b.user != "" || len(b.groups) > 0 {
			return nil, command.Usagef("--user and --group require --bootstrap FILE")
		}
		return runSelfTest(ctx, env, askEnvoy)
	}, func(t *selfTest) bool { return !t.OK })
}

// maxPerCheck bounds the lines that the text output prints for one check.
const maxPerCheck = 10

func printChecks(w io.Writer, t *selfTest) {
	n := 0
	for i, c := range t.Checks {
		last := i+1 == len(t.Checks) || t.Checks[i+1].Name != c.Name || t.Checks[i+1].Hint != c.Hint ||
			t.Checks[i+1].Command != c.Command
		if n++; n <= maxPerCheck {
			text.Printf(w, "%-4s %s: %s\n", c.State, c.Name, text.OneLine(c.Reason))
		}
		if !last {
			continue
		}
		if n > maxPerCheck {
			text.Printf(w, "     … and %d more, in nearside check -o yaml\n", n-maxPerCheck)
		}
		if n = 0; c.Hint != "" {
			text.Printf(w, "     hint: %s\n", c.Hint)
		}
		if c.Command != "" {
			text.Printf(w, "     run: %s\n", c.Command)
		}
	}
}

// uncheckedTimeout bounds the time that "check" waits for the agent to check the proxies that are
// not connected.
const uncheckedTimeout = 30 * time.Second

// statusOfAll polls the status until the agent has checked all proxies, or until uncheckedTimeout
// has passed.
func statusOfAll(ctx context.Context, env *command.Env, c *client.Client) (*api.Status, error) {
	update, done := command.Progress(env, "checking proxies that are not connected")
	defer done()
	all := 0
	for begun := time.Now(); ; {
		s, err := c.Status(ctx)
		if err != nil || s.Unchecked == 0 || time.Since(begun) > uncheckedTimeout {
			return s, err
		}
		if all = max(all, s.Unchecked); update != nil {
			update(all-s.Unchecked, all)
		}
	}
}

// runSelfTest runs all checks.
func runSelfTest(ctx context.Context, env *command.Env, askEnvoy bool) (*selfTest, error) {
	bin, err := envoybin.Find(env.Getenv, askEnvoy)
	if err != nil {
		return nil, err
	}
	c := env.Client()
	s, err := statusOfAll(ctx, env, c)
	if err != nil {
		return nil, err
	}
	t := &selfTest{OK: true}
	own := env.Build().Version
	if s.Info.Version == own {
		t.add(CheckOK, "agent", "", "%s %s on %s responds, up %s", s.Info.Product, s.Info.Version, s.Info.Node,
			text.Age(s.Info.Started))
	} else {
		t.add(checkWarn, "agent", "restart the agent after an upgrade, or use the command of its version",
			"%s %s on %s responds, but this command is %s", s.Info.Product, s.Info.Version, s.Info.Node, own)
	}
	checkAgent(t, s)
	if bin != nil {
		proxies, err := c.Proxies(ctx)
		if err != nil {
			return nil, err
		}
		checkEnvoy(ctx, env, t, bin, proxies.Items)
	}
	return t, nil
}

// checkAgent adds the checks of the agent that passed, and all its problems.
func checkAgent(t *selfTest, s *api.Status) {
	for _, c := range s.Checks {
		if c.OK && !c.Degraded {
			t.add(CheckOK, c.Name, "", "%s", c.Reason)
		}
	}
	t.add(CheckOK, "proxies", "", "%s", text.Counts(s.Proxies))
	for _, p := range s.Problems {
		state := checkWarn
		if p.Severity == api.SeverityError {
			state = checkFail
		}
		t.add(state, p.Check, "", "%s", text.Problem(&p))
		t.Checks[len(t.Checks)-1].Command = p.Command
	}
	if len(s.Problems) == 0 {
		t.add(CheckOK, "problems", "", "none")
	}
	if s.Unchecked > 0 {
		t.add(checkWarn, "unchecked", "run nearside check again, or nearside validate -f DIR", "%s", text.Unchecked(s))
	}
}

// checkEnvoy validates the config of each connected proxy with an Envoy binary.
func checkEnvoy(ctx context.Context, env *command.Env, t *selfTest, bin *envoybin.Binary, list []api.Proxy) {
	tried, bad := 0, false
	for _, p := range list {
		if p.Mesh == "" || p.State == "disconnected" || p.State == "elsewhere" || p.State == "unknown" {
			continue
		}
		cfg, err := env.Client().Config(ctx, p.Mesh, p.Name, render.ConfigOptions{})
		var found []api.Finding
		if err == nil {
			found, err = bin.TryConfig(ctx, p.Mesh, p.Name, cfg)
		}
		tried++
		if err != nil {
			bad = true
			t.add(checkWarn, "envoy", "run nearside check again; ENVOY_BIN must name an Envoy of the version of the proxies",
				"%s/%s: %v", p.Mesh, p.Name, err)
		}
		for i := range found {
			bad = true
			t.add(checkFail, "envoy", "nearside inspect dataplane NAME --type=config shows the resource; "+
				"fix the policy that causes it, and report that the check missed it", "%s", found[i].Line())
		}
	}
	if !bad {
		t.add(CheckOK, "envoy", "", "%s accepts the configs of %s", bin.Path, plural.Count(tried, "connected proxy"))
	}
}
