package envoybin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Binary is an Envoy executable that validates configs. In its validate mode, Envoy loads a config
// but opens no sockets. Use one Binary per request; it is not safe for concurrent use.
type Binary struct {
	Path    string        // of the executable
	Timeout time.Duration // per config; 0: 10 s
	Most    int           // maximum number of distinct configs; 0: 64

	known         map[[sha256.Size]byte][]finding.Finding
	runs          int
	limitReported bool // the error about more than Most configs was returned
	certs         *throwaway
}

// EnvoyVariable is the environment variable with the path of the Envoy executable.
const EnvoyVariable = "ENVOY_BIN"

// Find returns the Envoy named by [EnvoyVariable]. If the variable is not set, Find looks for envoy
// on the PATH if onPath is true, and otherwise returns nil. It is an error if the executable does
// not exist.
func Find(getenv func(string) string, onPath bool) (*Binary, error) {
	name := getenv(EnvoyVariable)
	if name == "" && onPath {
		name = "envoy"
	}
	if name == "" {
		return nil, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("cannot find Envoy: %w; set %s to its path", err, EnvoyVariable)
	}
	return &Binary{Path: path}, nil
}

// Try validates the config of a proxy. If Envoy rejects it, the result is a finding with the rule
// [change.RuleOfEnvoy]. An error says why the config was not validated. The first config beyond
// Most is an error; later ones return no findings.
func (e *Binary) Try(ctx context.Context, p *generate.Proxy) ([]finding.Finding, error) {
	return e.TrySnapshot(ctx, p.Mesh, p.Name, p.Snapshot())
}

// TrySnapshot is like Try for the resources of a proxy.
func (e *Binary) TrySnapshot(ctx context.Context, mesh, name string, s *envoy.Snapshot) ([]finding.Finding, error) {
	cfg, err := staticFrom(s)
	if err != nil {
		return nil, fmt.Errorf("cannot validate the config with Envoy: %w", err)
	}
	return e.try(ctx, mesh, name, cfg)
}

// TryConfig is like Try for a config in the form of the API. A generated certificate replaces
// hidden keys.
func (e *Binary) TryConfig(ctx context.Context, mesh, name string, c *api.Config) ([]api.Finding, error) {
	cfg, err := staticFromJSON(c.XDS)
	if err != nil {
		return nil, fmt.Errorf("cannot validate the config with Envoy: %w", err)
	}
	found, err := e.try(ctx, mesh, name, cfg)
	var out []api.Finding
	for i := range found {
		f := change.ForAPI(&found[i])
		f.Proxies, f.Total = append(f.Proxies, mesh+"/"+name), 1
		out = append(out, f)
	}
	return out, err
}

// try validates a config, or returns the cached result for it.
func (e *Binary) try(ctx context.Context, mesh, proxy string, cfg *staticConfig) ([]finding.Finding, error) {
	e.Timeout = cmp.Or(e.Timeout, 10*time.Second)
	if e.Most == 0 {
		e.Most = 64
	}
	if e.certs == nil {
		var err error
		if e.certs, err = newThrowaway(); err != nil {
			return nil, err
		}
	}
	name, text, err := cfg.bootstrap(mesh, proxy, e.certs)
	if err != nil {
		return nil, fmt.Errorf("cannot validate the config with Envoy: encoding failed: %w", err)
	}
	sum := sha256.Sum256(text)
	if out, ok := e.known[sum]; ok {
		return out, nil
	}
	if e.runs >= e.Most {
		if e.limitReported {
			return nil, nil
		}
		e.limitReported = true
		return nil, fmt.Errorf("%s: the limit of configs (%d) is reached; the remaining configs were not validated",
			e.Path, e.runs)
	}
	e.runs++
	output, refused, err := e.run(ctx, name, text)
	if err == nil && refused && strings.Contains(output, "JSON") {
		// Envoy rejects unknown fields and types in JSON, but ignores unknown fields over xDS.
		if text, err = cfg.wire(); err == nil {
			output, refused, err = e.run(ctx, "envoy.pb", text, "--allow-unknown-static-fields")
		}
	}
	if err != nil {
		return nil, err
	}
	var out []finding.Finding
	if refused {
		message, position := complaint(output, cfg)
		out = []finding.Finding{{Rule: change.RuleOfEnvoy, Severity: finding.Reject, Position: position, Message: message}}
	}
	if e.known == nil {
		e.known = map[[sha256.Size]byte][]finding.Finding{}
	}
	e.known[sum] = out
	return out, nil
}

// Runs returns the number of times that Envoy was started.
func (e *Binary) Runs() int { return e.runs }

// run starts Envoy to validate a config and returns its output if it rejects the config.
func (e *Binary) run(ctx context.Context, name string, text []byte,
	more ...string) (output string, refused bool, err error) {
	dir, err := os.MkdirTemp("", "nearside-envoy-")
	if err != nil {
		return "", false, fmt.Errorf("cannot validate the config with Envoy: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", false, fmt.Errorf("cannot validate the config with Envoy: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	var out lastBytes
	cmd := exec.CommandContext(limited, e.Path,
		append([]string{"--mode", "validate", "--log-level", "warning", "-c", file}, more...)...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to kill its child processes too
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", false, nil
	case ctx.Err() != nil:
		return "", false, fmt.Errorf("cannot finish the validation with Envoy: %w", context.Cause(ctx))
	case limited.Err() != nil:
		return "", false, fmt.Errorf("%s did not finish within %s", e.Path, e.Timeout)
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return string(bytes.ReplaceAll(out.b, []byte(file), []byte(name))), true, nil
	}
	return "", false, fmt.Errorf("%s failed: %w", e.Path, err)
}

// lastBytes is a writer that retains the last maxOutput bytes.
type lastBytes struct{ b []byte }

// maxOutput limits the retained output of Envoy, in bytes.
const maxOutput = 64 << 10

var _ io.Writer = (*lastBytes)(nil)

func (w *lastBytes) Write(p []byte) (int, error) {
	w.b = append(w.b, p[max(0, len(p)-maxOutput):]...)
	if len(w.b) > maxOutput {
		w.b = append(w.b[:0], w.b[len(w.b)-maxOutput:]...)
	}
	return len(p), nil
}
