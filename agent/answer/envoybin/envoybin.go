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
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Binary is an Envoy of this host that is asked about configs, in its validate mode: it loads
// a config and opens no socket. Make one for each question; it must not be used by two goroutines
// at once.
type Binary struct {
	Path    string        // of the program
	Timeout time.Duration // for one config; 0: 10 s
	Most    int           // configs that are tried, each distinct one once; 0: 64

	known map[[sha256.Size]byte][]finding.Finding
	runs  int
	told  bool // that there were more than Most
	certs *throwaway
}

// EnvoyVariable names the environment variable with the path of the Envoy that is asked.
const EnvoyVariable = "ENVOY_BIN"

// Find returns the Envoy that the environment names, and with onPath where it names none the
// one on the PATH; nil for none. A name that leads to no program is an error.
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
		return nil, fmt.Errorf("no Envoy can be asked: %w; set %s to the path of one", err, EnvoyVariable)
	}
	return &Binary{Path: path}, nil
}

// Try has the Envoy load the config of a proxy: what it refuses is a finding with
// [change.RuleOfEnvoy]. An error says why nothing was found out. Configs beyond Most are one error
// together, and then nothing.
func (e *Binary) Try(ctx context.Context, p *generate.Proxy) ([]finding.Finding, error) {
	return e.TrySnapshot(ctx, p.Mesh, p.Name, p.Snapshot())
}

// TrySnapshot is Try for the resources of a proxy.
func (e *Binary) TrySnapshot(ctx context.Context, mesh, name string, s *envoy.Snapshot) ([]finding.Finding, error) {
	cfg, err := staticFrom(s)
	if err != nil {
		return nil, fmt.Errorf("the Envoy was not asked: %w", err)
	}
	return e.try(ctx, mesh, name, cfg)
}

// TryConfig is Try for a config as the API shows it. Where a key is hidden in it, a certificate
// that is made up stands in its place.
func (e *Binary) TryConfig(ctx context.Context, mesh, name string, c *api.Config) ([]api.Finding, error) {
	cfg, err := staticFromJSON(c.XDS)
	if err != nil {
		return nil, fmt.Errorf("the Envoy was not asked: %w", err)
	}
	found, err := e.try(ctx, mesh, name, cfg)
	var out []api.Finding
	for i := range found {
		f := change.Told(&found[i])
		f.Proxies, f.Total = append(f.Proxies, mesh+"/"+name), 1
		out = append(out, f)
	}
	return out, err
}

// try has the Envoy load a config, unless it has done so before.
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
		return nil, fmt.Errorf("the Envoy was not asked: the config cannot be written down: %w", err)
	}
	sum := sha256.Sum256(text)
	if out, ok := e.known[sum]; ok {
		return out, nil
	}
	if e.runs >= e.Most {
		if e.told {
			return nil, nil
		}
		e.told = true
		return nil, fmt.Errorf("%s was asked about %s; this one and further ones were not tried", e.Path,
			plural.Count(e.runs, "config"))
	}
	e.runs++
	said, refused, err := e.run(ctx, name, text)
	if err == nil && refused && strings.Contains(said, "JSON") {
		// As JSON it takes no field and no type that it does not know. Over xDS it passes over such a
		// field.
		if text, err = cfg.wire(); err == nil {
			said, refused, err = e.run(ctx, "envoy.pb", text, "--allow-unknown-static-fields")
		}
	}
	if err != nil {
		return nil, err
	}
	var out []finding.Finding
	if refused {
		message, place := complaint(said, cfg)
		out = []finding.Finding{{Rule: change.RuleOfEnvoy, Severity: finding.Reject, Place: place, Message: message}}
	}
	if e.known == nil {
		e.known = map[[sha256.Size]byte][]finding.Finding{}
	}
	e.known[sum] = out
	return out, nil
}

// Runs is how often the Envoy was started.
func (e *Binary) Runs() int { return e.runs }

// run starts Envoy on a config and returns what it has said when it refuses the config.
func (e *Binary) run(ctx context.Context, name string, text []byte,
	more ...string) (said string, refused bool, err error) {
	dir, err := os.MkdirTemp("", "nearside-envoy-")
	if err != nil {
		return "", false, fmt.Errorf("the Envoy was not asked: %w", err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", false, fmt.Errorf("the Envoy was not asked: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	var out lastBytes
	cmd := exec.CommandContext(limited, e.Path,
		append([]string{"--mode", "validate", "--log-level", "warning", "-c", file}, more...)...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that all of it can be ended
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", false, nil
	case ctx.Err() != nil:
		return "", false, fmt.Errorf("the Envoy gave no complete answer: %w", context.Cause(ctx))
	case limited.Err() != nil:
		return "", false, fmt.Errorf("%s has no answer after %s", e.Path, e.Timeout)
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return string(bytes.ReplaceAll(out.b, []byte(file), []byte(name))), true, nil
	}
	return "", false, fmt.Errorf("%s did not end well: %w", e.Path, err)
}

// lastBytes keeps the end of what is written.
type lastBytes struct{ b []byte }

// maxSaid bounds what is kept of the output of an Envoy.
const maxSaid = 64 << 10

var _ io.Writer = (*lastBytes)(nil)

func (w *lastBytes) Write(p []byte) (int, error) {
	w.b = append(w.b, p[max(0, len(p)-maxSaid):]...)
	if len(w.b) > maxSaid {
		w.b = append(w.b[:0], w.b[len(w.b)-maxSaid:]...)
	}
	return len(p), nil
}
