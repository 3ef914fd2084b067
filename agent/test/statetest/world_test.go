package statetest_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// nobody is the user of agents that cannot open a file of root.
const nobody = 65534

// documents are what an operator has written over the API: without them, web reaches db, and its
// requests have other timeouts.
const documents = `type: Mesh
name: default
mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}
---
type: MeshTimeout
mesh: default
name: slow
spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 7s}}]}
---
type: MeshTrafficPermission
mesh: default
name: guard
spec: {targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {action: Deny}}]}
`

// dataplane is the file of the node.
const dataplane = `type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound: [{port: 20000, tags: {kuma.io/service: db}}]
`

func options(dir string, set ...string) config.LoadOptions {
	o := agenttest.Options(dir, append(set, "dns.listen=127.0.0.1:0", "api.socket.group=",
		"xds.socket.group=", "api.socket.mode=0666",
		"xds.socket.mode=0666")...)
	o.UID = func() int { return nobody }
	return o
}

// pool are the keys of a config with a pool of one node.
var pool = []string{"gossip.bind=127.0.0.1:0", "gossip.insecure=true"}

// trustFile returns a trust file of one root.
func trustFile(t *testing.T) []byte {
	t.Helper()
	key := sign.Key(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	e := &trust.Envelope{Document: fmt.Appendf(nil, "cluster: default\nversion: 1\nmode: warn\nthreshold: 1\nroots:\n"+
		"- {name: root, key: %s}\n", trust.PublicKey(key.Public()))}
	agenttest.Do(t, e.Sign(key))
	return e.Encode()
}

// world is a node with state, and the config that its Envoy holds.
type world struct {
	dir      string
	config   string            // of the proxy, without certificates
	versions map[string]string // of its clusters
	key      string            // name of the token key
}

// newWorld runs an agent, as an operator and an Envoy use it, and stops it.
func newWorld(t *testing.T) *world {
	w := &world{dir: agenttest.ShortDir(t), versions: map[string]string{}}
	agenttest.Do(t, os.Mkdir(filepath.Join(w.dir, "resources"), 0o755))
	agenttest.Write(t, filepath.Join(w.dir, "resources", "web.yaml"), dataplane)
	keys := token.Open(filepath.Join(w.dir, "state", token.Dir), nil, time.Now)
	_, err := keys.Create(token.Claims{Audience: token.AudienceAPI, Subject: "test"}, time.Hour)
	agenttest.Do(t, err, keys.Revoke("another", time.Now().Add(time.Hour)))
	list, err := keys.List()
	agenttest.Do(t, err)
	w.key = list[0].ID
	for range 2 { // the second start records what the first one has created
		r := start(t, w.dir, pool...)
		if len(w.versions) == 0 {
			agenttest.Apply(t, r.Agent, documents)
			agenttest.Do(t, r.api.AnchorTrust(t.Context(), trustFile(t)))
		}
		s := r.ask(t, nil)
		if names := agenttest.Next(t, s, w.versions); !strings.Contains(names, "db") {
			t.Fatalf("clusters: %s", names)
		}
		agenttest.InSync(t, r.Agent, "default.web")
		w.config = r.config(t)
		r.stop()
	}
	if !strings.Contains(w.config, "7s") {
		t.Fatalf("the policy is not in force: %s", w.config)
	}
	return w
}

// copyOf returns the directory of a copy of the state.
func (w *world) copyOf(t *testing.T) string {
	t.Helper()
	dir := agenttest.ShortDir(t)
	w.copyTo(t, dir)
	return dir
}

// copyTo copies the state to the directory of another node.
func (w *world) copyTo(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"state", "resources", "logs"} {
		agenttest.Do(t, os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(w.dir, name))))
	}
	agenttest.Do(t, filepath.WalkDir(filepath.Join(dir, "state"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return errors.Join(err, os.Chmod(path, 0o600))
	}))
}

// running is an agent in this process or another one.
type running struct {
	*agent.Agent // nil in another process
	api          *client.Client
	xds          string
	stop         func()
}

func start(t *testing.T, dir string, set ...string) *running {
	t.Helper()
	up := agenttest.Up(t, dir, agent.Deps{}, append(set, "dns.listen=127.0.0.1:0")...)
	return &running{Agent: up.Agent, api: up.Api(), xds: up.Addrs().XDS, stop: func() { agenttest.Do(t, up.Stop()) }}
}

// startAs starts an agent as nobody, in another process.
func startAs(t *testing.T, dir string, set ...string) *running {
	t.Helper()
	own(t, dir)
	return startProcess(t, dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}},
		agentSet+"="+strings.Join(set, " "))
}

// startProcess starts an agent in another process.
func startProcess(t *testing.T, dir string, as *syscall.SysProcAttr, env ...string) *running {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(env, agentDir+"="+dir)
	var log strings.Builder
	cmd.Stderr = &log
	as.Pdeathsig, cmd.SysProcAttr = syscall.SIGKILL, as
	agenttest.Do(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop := func() { _ = cmd.Process.Signal(syscall.SIGTERM); <-ended }
	t.Cleanup(stop)
	socket := filepath.Join(dir, "run", "nearside.sock")
	r := &running{api: client.New(socket, agenttest.Patience), xds: filepath.Join(dir, "run", "xds.sock"), stop: stop}
	tick := time.NewTicker(5 * time.Millisecond) // another process has no event for this
	defer tick.Stop()
	agenttest.Await(t, "the agent serves", tick.C, func() bool {
		select {
		case <-ended:
			t.Fatalf("the agent has ended: %s", log.String())
		default:
		}
		c, err := net.Dial("unix", socket) // the file exists before the agent listens
		if err == nil {
			err = c.Close()
		}
		return err == nil
	})
	return r
}

// own gives a node to nobody, except what is root's already by a fault.
func own(t *testing.T, dir string) {
	t.Helper()
	agenttest.Do(t, os.Chmod(dir, 0o755), filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if st, err := d.Info(); err != nil || st.Mode().Perm() == rootOnly {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	}))
}

// rootOnly is the mode of files that stay root's.
const rootOnly = 0o200

// ask opens a stream of the Envoy, which holds clusters.
func (r *running) ask(t *testing.T,
	has map[string]string) discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), agenttest.Patience)
	t.Cleanup(cancel)
	s, err := discovery.NewAggregatedDiscoveryServiceClient(agenttest.Dial(t, r.xds)).DeltaAggregatedResources(ctx)
	agenttest.Do(t, err, s.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "default.web"},
		TypeUrl: draft.TypeCluster, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: has}))
	return s
}

var certificate = regexp.MustCompile(`"(version|inlineBytes|versionInfo|inlineString|lastUpdated)": *"[^"]*"`)

// config returns the config of the proxy without certificates and versions.
func (r *running) config(t *testing.T) string {
	t.Helper()
	c, err := r.api.Config(t.Context(), "default", "web", render.ConfigOptions{})
	agenttest.Do(t, err)
	b, err := json.Marshal(c)
	agenttest.Do(t, err)
	return certificate.ReplaceAllString(string(b), "")
}

// status returns the status of the agent, and its problems as text.
func (r *running) status(t *testing.T) (*api.Status, string) {
	t.Helper()
	s, err := r.api.Status(t.Context())
	agenttest.Do(t, err)
	var out []string
	for _, p := range s.Problems {
		out = append(out, p.Severity+" "+p.Check+" "+p.Resource+": "+p.Reason)
	}
	return s, strings.Join(out, "\n")
}

// resolves waits until the answer to a query for an IPv4 address has a code. The resolver gets
// changes after the proxies.
func (r *running) resolves(t *testing.T, name, code string) {
	t.Helper()
	var m mdns.Msg
	m.SetQuestion(name, mdns.TypeA)
	agenttest.Eventually(t, "the answer for "+name+" is "+code, func() bool {
		c := mdns.Client{Timeout: agenttest.Patience}
		in, _, err := c.Exchange(&m, r.Addrs().DNS[0])
		agenttest.Do(t, err)
		return mdns.RcodeToString[in.Rcode] == code
	})
}
