package changetest_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// move is a mesh that moves from a control plane to an agent. The Envoys of one node move, and
// those of the other one stay.
type move struct {
	t       *testing.T
	cp      *controlPlane
	folder  string // of the agent
	agent   *agenttest.Running
	envoys  map[string]*envoytest.Process
	callers map[string]*caller
	x       *traffic
}

// TestMoveFromKuma follows docs/from-kuma.md with real Envoys: the sidecars of a client and of a
// server move from a control plane to an agent, one after the other, and back. No request may fail.
func TestMoveFromKuma(t *testing.T) {
	envoytest.Find(t)
	m := &move{t: t, cp: newControlPlane(t), envoys: map[string]*envoytest.Process{}, callers: map[string]*caller{},
		x: newTraffic(t, drainTime)}
	for _, p := range m.cp.proxies {
		m.envoys[p.name] = m.startKuma(p.name)
	}
	m.call()
	m.passAll()
	m.importExport()
	for _, name := range []string{"web-1", "backend-1"} {
		m.replace(name, m.stopKuma, m.startNearside)
		m.passAll()
	}
	for _, name := range []string{"backend-1", "web-1"} {
		m.replace(name, m.stopNearside, m.returnKuma)
		m.passAll()
	}
	m.x.stop()
	m.x.report(t)
}

// importExport imports the export of the control plane, validates the folder, and starts an agent.
func (m *move) importExport() {
	m.t.Helper()
	home := agenttest.ShortDir(m.t)
	export := filepath.Join(home, "export.yaml")
	agenttest.WriteSecret(m.t, export, m.cp.export())
	m.folder = filepath.Join(home, "resources")
	m.nearside("import", "-f", export, "--write", m.folder)
	agenttest.Do(m.t, os.Remove(export))
	m.nearside("validate", "-f", m.folder)
	m.agent = agenttest.Up(m.t, home, agent.Deps{}, "node.zone=default")
	m.nearside("status", "--socket", m.agent.Addrs().API)
}

// nearside runs a command and returns its standard output.
func (m *move) nearside(args ...string) string {
	m.t.Helper()
	var out, errs bytes.Buffer
	p := command.Program{CheckConfig: agent.CheckConfig}
	if code := cli.Main(p, args, strings.NewReader(""), &out, &errs, nil); code != 0 {
		m.t.Fatalf("%v: exit code %d: %s%s", args, code, out.String(), errs.String())
	}
	return out.String()
}

// replace moves a proxy: no other proxy and no client uses it while its Envoy is replaced.
func (m *move) replace(name string, stop func(string), start func(string) *envoytest.Process) {
	m.t.Helper()
	m.x.note("the move of " + name)
	m.setReady(name, false)
	if c := m.callers[name]; c != nil {
		c.Lock()
		defer c.Unlock()
		c.client.CloseIdleConnections()
	}
	stop(name)
	m.envoys[name] = start(name)
	m.setReady(name, true)
}

// stopKuma stops an Envoy of the control plane as kuma-dp does, when no other proxy uses it.
func (m *move) stopKuma(name string) {
	m.t.Helper()
	e := m.envoys[name]
	agenttest.Eventually(m.t, "no proxy uses "+name, func() bool {
		_, stats := e.Admin("/stats?filter=" + m.cp.proxy(name).listenerStats() + "downstream_cx_active$")
		return strings.HasSuffix(strings.TrimSpace(stats), ": 0")
	})
	e.Post("/healthcheck/fail")
	agenttest.Do(m.t, e.Signal(syscall.SIGTERM))
	<-e.Ended()
}

// stopNearside stops an Envoy of the agent when no other proxy uses it.
func (m *move) stopNearside(name string) {
	m.t.Helper()
	m.nearside("drain", name, "-m", "shop", "--wait", "--socket", m.agent.Addrs().API)
	e := m.envoys[name]
	agenttest.Do(m.t, e.Signal(syscall.SIGTERM))
	<-e.Ended()
}

// returnKuma starts an Envoy of the control plane in place of one of the agent. The agent has taken
// the Dataplane out of use, until the Dataplane is new.
func (m *move) returnKuma(name string) *envoytest.Process {
	m.t.Helper()
	e := m.startKuma(name)
	key := resource.Key{Kind: "Dataplane", Mesh: "shop", Name: name}
	stored := func() bool { _, ok := m.agent.Store().Snapshot().Get(key); return ok }
	path := filepath.Join(m.folder, "shop.dataplanes.yaml")
	text, err := os.ReadFile(path)
	agenttest.Do(m.t, err)
	others := slices.DeleteFunc(strings.Split(string(text), "---\n"), func(doc string) bool {
		return strings.Contains(doc, "\nname: "+name+"\n")
	})
	m.write(path, strings.Join(others, "---\n"))
	agenttest.Eventually(m.t, name+" is deleted", func() bool { return !stored() })
	m.write(path, string(text))
	agenttest.Eventually(m.t, name+" is stored", stored)
	return e
}

// setReady sets the state of a Dataplane on both sides.
func (m *move) setReady(name string, ready bool) {
	m.t.Helper()
	m.cp.setReady(name, ready)
	path := filepath.Join(m.folder, "shop.dataplanes.yaml")
	text, err := os.ReadFile(path)
	agenttest.Do(m.t, err)
	head, rest, ok := strings.Cut(string(text), "name: "+name+"\n")
	if !ok {
		m.t.Fatalf("no %s in %s", name, text)
	}
	const ports, notReady = "    - port: ", "    - state: NotReady\n      port: "
	if ready {
		rest = strings.Replace(rest, notReady, ports, 1)
	} else {
		rest = strings.Replace(rest, ports, notReady, 1)
	}
	m.write(path, head+"name: "+name+"\n"+rest)
}

// write replaces a file.
func (m *move) write(path, text string) {
	m.t.Helper()
	agenttest.Write(m.t, path+".new", text)
	agenttest.Do(m.t, os.Rename(path+".new", path))
}

// startKuma starts an Envoy of the control plane.
func (m *move) startKuma(name string) *envoytest.Process {
	m.t.Helper()
	return envoytest.Start(m.t, envoytest.Find(m.t), "", func(admin string) ([]byte, error) {
		return m.cp.bootstrap(name, admin), nil
	})
}

// startNearside starts an Envoy of the agent.
func (m *move) startNearside(name string) *envoytest.Process {
	m.t.Helper()
	admin := filepath.Join(filepath.Dir(m.agent.Addrs().XDS), "envoy", strconv.Itoa(os.Geteuid()), "shop."+name+".sock")
	e := envoytest.Start(m.t, envoytest.Find(m.t), admin, func(string) ([]byte, error) {
		return []byte(m.nearside("bootstrap", "--name", name, "-m", "shop", "--socket", m.agent.Addrs().API)), nil
	})
	m.nearside("wait", "dataplane/"+name, "-m", "shop", "--socket", m.agent.Addrs().API)
	return e
}

// passAll waits until requests pass from now on between each client and each server.
func (m *move) passAll() {
	m.t.Helper()
	const enough = 10
	m.x.mu.Lock()
	before := maps.Clone(m.x.requests)
	m.x.mu.Unlock()
	failed := false
	agenttest.Eventually(m.t, "requests pass between all proxies", func() bool {
		m.x.mu.Lock()
		defer m.x.mu.Unlock()
		failed = len(m.x.failures) > 0
		return failed || !slices.ContainsFunc([]string{"web-1 backend-1", "web-1 backend-2", "web-2 backend-1",
			"web-2 backend-2"}, func(pair string) bool { return m.x.requests[pair] < before[pair]+enough })
	})
	if failed {
		m.x.stop()
		m.x.report(m.t)
		m.t.FailNow()
	}
}
