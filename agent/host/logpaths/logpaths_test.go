package logpaths_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/logpaths"
)

// newConfig returns a config with directories below dir, which exist.
func newConfig(t *testing.T, dir string) *config.Config {
	t.Helper()
	c := new(config.Config)
	c.Paths.Logs, c.Paths.Run, c.Paths.State = dir+"/logs", dir+"/run", dir+"/state"
	c.Resources.Dir = []config.ResourceDir{{Path: dir + "/resources"}}
	c.AccessLog.Directories, c.AccessLog.Rotation = []string{dir + "/srv"}, "always"
	c.AccessLog.Receivers = []config.Receiver{{Name: "main", File: dir + "/logs/access/main.log"}}
	c.AuditLog.Path = dir + "/logs/audit/audit.log"
	c.Log.File, c.DNS.QueryLog.File = dir+"/logs/agent.log", dir+"/logs/queries.log"
	for _, d := range []string{"logs/audit", "logs/dns", "logs/access", "run", "state", "srv", "resources", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestPolicies checks which files policies may name, for the agent and for an Envoy as the writer.
func TestPolicies(t *testing.T) {
	dir := t.TempDir()
	r := logpaths.New(newConfig(t, dir))
	for _, link := range [][2]string{{"logs", "logs-link"}, {"logs/audit", "tmp/a"}, {"logs/audit/new.log", "tmp/new.log"},
		{"tmp", "srv/tmp"}} {
		if err := os.Symlink(filepath.Join(dir, link[0]), filepath.Join(dir, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string][2]string{ // for the agent, and for an Envoy
		"logs/access/web.log": {"", ""}, "logs/web.log": {"", ""}, "srv/deep/web.log": {"", ""},
		"logs-link/web.log": {"", ""}, "tmp/web.log": {"only below paths.logs", ""},
		"srv/tmp/web.log":                                 {"", ""}, // below accessLog.directories, whose owner made the link
		"logs/audit/audit.log":                            {"contains the audit log", "contains the audit log"},
		"logs/audit/mine.log":                             {"contains the audit log", "contains the audit log"},
		"logs/access/../audit/x":                          {"contains the audit log", "contains the audit log"},
		"logs-link/audit/x":                               {"contains the audit log", "contains the audit log"},
		"tmp/a/audit.log":                                 {"contains the audit log", "contains the audit log"},
		"srv/tmp/a/audit.log":                             {"contains the audit log", "contains the audit log"},
		"tmp/new.log":                                     {"contains the audit log", "contains the audit log"},
		"logs/dns/x":                                      {"DNS queries", "DNS queries"},
		"state/spool/x":                                   {"paths.state", "paths.state"},
		"run/access/nearside-a.fifo":                      {"paths.run", "paths.run"},
		"resources/x.yaml":                                {"resource files", "resource files"},
		"logs/agent.log":                                  {"log.file", "log.file"},
		"logs/queries.log":                                {"dns.queryLog.file", "dns.queryLog.file"},
		"logs/access/main.log":                            {"the receiver main", "the receiver main"},
		"logs//access/./main.log":                         {"the receiver main", "the receiver main"},
		"logs/access/.main.log.lock":                      {"lock file of main.log", "lock file of main.log"},
		"tmp/x-2099-01-01T00-00-00.000":                   {"backup of x", "backup of x"},
		"logs/access/main-2099-01-01T00-00-00.000.log":    {"backup of main.log", "backup of main.log"},
		"logs/access/main-2099-01-01T00-00-00.000.log.gz": {"backup of main.log", "backup of main.log"},
		"logs/access/.main-2099-01-01T00-00-00.000.log.gz.tmp": {"temporary file", "temporary file"},
	} {
		for i, check := range []func(string) error{r.CheckPolicy, r.CheckEnvoy} {
			err := check(dir + "/" + path)
			if (err == nil) != (want[i] == "") || err != nil && !strings.Contains(err.Error(), want[i]) {
				t.Errorf("%s, writer %d: %v, want %q", path, i, err, want[i])
			}
		}
	}
}

// TestMounts checks that a mount of the agent's directory at another path is closed as well.
func TestMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	dir := t.TempDir()
	r := logpaths.New(newConfig(t, dir))
	at := dir + "/tmp/mnt"
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir+"/logs", at, "", unix.MS_BIND, ""); err != nil {
		t.Skip("mounts are not possible: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	if err := r.CheckEnvoy(at + "/audit/audit.log"); err == nil || !strings.Contains(err.Error(), "audit log") {
		t.Errorf("the audit log at another path: %v", err)
	}
	if err := r.CheckEnvoy(at + "/access/x.log"); err != nil {
		t.Error(err)
	}
}

// TestClaims checks that a path has one owner, with all spellings, and that files with common names
// of backups exclude each other in both orders.
func TestClaims(t *testing.T) {
	dir := t.TempDir()
	r := logpaths.New(newConfig(t, dir))
	if err := os.Symlink(dir+"/srv", dir+"/srv-link"); err != nil {
		t.Fatal(err)
	}
	claim := func(owner logpaths.Owner, path, want string) {
		t.Helper()
		_, err := r.Claim(owner, dir+"/"+path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s claims %s: %v, want %q", owner, path, err, want)
		}
	}
	claim(logpaths.Receiver("main"), "logs/access/main.log", "")
	claim(logpaths.Receiver("main"), "logs/access/main.log", "")
	claim(logpaths.Receiver("other"), "logs/access/main.log", "the receiver main")
	claim(logpaths.Policies, "srv/a", "")
	claim(logpaths.Policies, "srv-link/a", "")
	claim(logpaths.Receiver("other"), "srv-link/a", string(logpaths.Policies))
	claim(logpaths.Policies, "srv/a.gz", "names of backups")
	r.Release(dir + "/srv/a")
	claim(logpaths.Policies, "srv/a.gz", "names of backups")
	r.Release(dir + "/srv/a")
	claim(logpaths.Policies, "srv/a.gz", "")
	claim(logpaths.Policies, "srv/a", "names of backups")
}

// TestConflicts checks that two files of a config must have different paths.
func TestConflicts(t *testing.T) {
	dir := t.TempDir()
	c := newConfig(t, dir)
	if errs := logpaths.New(c).Conflicts(); len(errs) > 0 {
		t.Error(errs)
	}
	c.Log.File = dir + "/logs/audit/../audit/audit.log"
	errs := logpaths.New(c).Conflicts()
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "the audit log and the log of the agent (log.file)") {
		t.Error(errs)
	}
}

// TestRotates checks which files the agent writes, by config, backend, and path.
func TestRotates(t *testing.T) {
	var none *logpaths.Rules
	if none.Rotates("/var/log/x", false) || !none.Rotates("/var/log/x", true) || none.Refused("/var/log/x") != "" ||
		none.RunDir() != "/run/nearside" {
		t.Error("a node without a config")
	}
	dir := t.TempDir()
	c := newConfig(t, dir)
	for mode, want := range map[string][4]bool{ // inside, outside; then with rotation of the backend
		"always": {true, false, true, true}, "policy": {false, false, true, true}, "none": {},
	} {
		c.AccessLog.Rotation = mode
		r := logpaths.NewRules(c)
		in, out := dir+"/logs/x.log", "/tmp/x.log"
		got := [4]bool{r.Rotates(in, false), r.Rotates(out, false), r.Rotates(in, true), r.Rotates(out, true)}
		if got != want {
			t.Errorf("%s: %v, want %v", mode, got, want)
		}
	}
	if !logpaths.Unlimited("/dev/stdout") || logpaths.Unlimited("/tmp/x") {
		t.Error("devices")
	}
}
