package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestFileToEnvoy checks the whole path: a file, a proxy that receives its config, a changed file,
// an invalid file, and a restart that sends nothing.
func TestFileToEnvoy(t *testing.T) {
	dir := agenttest.ShortDir(t)
	file := filepath.Join(dir, "resources", "web.yaml")
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	agenttest.Write(t, file, agenttest.WebFile("a"))
	r := agenttest.Up(t, dir, agent.Deps{})
	versions := map[string]string{}
	s := r.Ask(&core.Node{Id: "default.web"}, nil)
	if got := agenttest.Next(t, s, versions); got != "a localhost:80" {
		t.Fatalf("first clusters: %q", got)
	}
	agenttest.Write(t, file, agenttest.WebFile("a", "b"))
	if got := agenttest.Next(t, s, versions); got != "b" {
		t.Fatalf("after an outbound was added: %q", got)
	}
	agenttest.Write(t, file, "type: [")
	agenttest.Await(t, "the fault is logged", r.Logs.Ch, func() bool {
		return strings.Contains(r.Logs.String(), "resource file has faults")
	})
	st, err := r.Api().Status(t.Context())
	if err != nil || len(st.Files) != 1 || !st.Files[0].Stale || len(st.Files[0].Faults) == 0 {
		t.Fatalf("status: %+v %v", st, err)
	}
	if !st.Ready {
		t.Errorf("a bad file makes the node unready: %+v", st.Checks)
	}
	agenttest.Do(t, r.Stop())

	// The invalid file still exists. Its last valid content applies, and the proxy already has all
	// of it.
	r = agenttest.Up(t, dir, agent.Deps{})
	s = r.Ask(&core.Node{Id: "default.web"}, versions)
	agenttest.Write(t, file, agenttest.WebFile("b"))
	if got := agenttest.Next(t, s, versions); got != "-a" {
		t.Fatalf("first response after a restart: %q, want the change alone", got)
	}
}

// TestEnvoyBringsItsDataplane checks a node that is known only through its metadata.
func TestEnvoyBringsItsDataplane(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.ByAPI(t, r.Store(), agenttest.Meshes("default"))
	node := &core.Node{Id: "default.web",
		Metadata: agenttest.Metadata(t, agenttest.DataplaneText("default", "web", "10.0.0.1"))}
	if got := agenttest.Next(t, r.Ask(node, nil), map[string]string{}); got != "localhost:80" {
		t.Errorf("clusters: %q", got)
	}
	if got := agenttest.Has(r.Store()); got != "envoy:default.web 10.0.0.1" {
		t.Errorf("stored: %q", got)
	}
	_, err := r.Ask(&core.Node{Id: "default.forged", Metadata: node.Metadata}, nil).Recv()
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "default.forged") {
		t.Errorf("a node with the Dataplane of another: %v", err)
	}
	// The resource is read-only over the API.
	if _, err := r.Api().Apply(t.Context(), []byte(agenttest.DataplaneText("default", "web", "10.0.0.9")),
		false); err == nil || !strings.Contains(err.Error(), "envoy:default.web") {
		t.Errorf("the API changes the Dataplane of an Envoy: %v", err)
	}
}

func TestTwoAgentsInOneProcess(t *testing.T) {
	a, b := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{}, "api.tcp=127.0.0.1:0", "xds.tcp=127.0.0.1:0"),
		agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	agenttest.ByAPI(t, a.Store(), agenttest.Meshes("a"))
	agenttest.ByAPI(t, b.Store(), agenttest.Meshes("b"))
	if agenttest.Held(a.Store()) != "a@api" || agenttest.Held(b.Store()) != "b@api" {
		t.Errorf("stores: %q %q", agenttest.Held(a.Store()), agenttest.Held(b.Store()))
	}
	for _, addr := range []net.Addr{a.Addrs().APITCP, a.Addrs().XDSTCP} {
		conn, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if b.Addrs().APITCP != nil {
		t.Error("the second agent has a TCP address")
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Up(t, dir, agent.Deps{})
	me := fmt.Sprintf("another agent (pid %d)", os.Getpid())
	for name, set := range map[string][]string{
		"same paths":  nil,
		"same state":  {"paths.run=run2"},
		"same run":    {"paths.state=state2"},
		"same socket": {"paths.run=run3", "paths.state=state3", "xds.socket.path=" + filepath.Join(dir, "run", "xds.sock")},
	} {
		if got := agenttest.Refused(t, dir, set...); !strings.Contains(got, me) {
			t.Errorf("%s: %s", name, got)
		}
	}
	// The first agent is not affected.
	if _, err := client.New(filepath.Join(dir, "run", "nearside.sock"), agenttest.Patience).
		Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSockets(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "run"), 0o700))
	stale := filepath.Join(dir, "run", "nearside.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	agenttest.Do(t, l.Close())

	r := agenttest.Up(t, dir, agent.Deps{}, "api.socket.mode=0640", "xds.socket.path=sub/x.sock", "xds.socket.mode=0666",
		fmt.Sprintf("api.socket.group=%d", os.Getegid()))
	if _, err := r.Api().Status(t.Context()); err != nil {
		t.Errorf("through the socket that replaced a stale one: %v", err)
	}
	for path, mode := range map[string]os.FileMode{stale: 0o640, filepath.Join(dir, "run/sub/x.sock"): 0o666,
		filepath.Join(dir, "run/sub"):       0o751,
		filepath.Join(dir, "run/sub/envoy"): 0o711, filepath.Join(dir, "run/sub/envoy", fmt.Sprint(os.Geteuid())): 0o700,
		filepath.Join(dir, "state"): 0o700} {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Mode() & (os.ModePerm | os.ModeSticky); got != mode {
			t.Errorf("%s has mode %v, want %v", path, got, mode)
		}
	}
	agenttest.Do(t, r.Stop())
	for _, p := range []string{stale, filepath.Join(dir, "run/sub/x.sock")} {
		if _, err := os.Lstat(p); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there after the end: %v", p, err)
		}
	}

	agenttest.Write(t, stale, "precious")
	if got := agenttest.Refused(t, dir); !strings.Contains(got, "not a socket") {
		t.Errorf("a file in the place of the socket: %s", got)
	}
	if b, err := os.ReadFile(stale); err != nil || string(b) != "precious" {
		t.Errorf("the file in the place of the socket was touched: %q %v", b, err)
	}
}

func TestNewRefusesLongSocketPath(t *testing.T) {
	cfg, _, _ := config.Load(agenttest.Options("/" + strings.Repeat("x", 100)))
	if _, err := agent.New(cfg, agent.Deps{}); err == nil || !strings.Contains(err.Error(), "at most 107") {
		t.Errorf("error: %v", err)
	}
}

// TestStopDuringWrites stops the agent while clients write. All acknowledged writes must exist
// after a restart.
func TestStopDuringWrites(t *testing.T) {
	dir := agenttest.ShortDir(t)
	r := agenttest.Up(t, dir, agent.Deps{})
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	enough := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		api := r.Api()
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("m-%d-%d", w, i)
				if _, err := api.Apply(context.Background(), []byte(agenttest.Meshes(name)), false); err != nil {
					return
				}
				mu.Lock()
				acknowledged[name] = true
				if len(acknowledged) == 40 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	if err := r.Stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	wg.Wait()
	r = agenttest.Up(t, dir, agent.Deps{})
	for name := range acknowledged {
		if _, ok := r.Store().Snapshot().Get(agenttest.MeshKey(name)); !ok {
			t.Errorf("the acknowledged mesh %s is lost", name)
		}
	}
}

// TestStopWithIdleClients stops the agent while idle clients are connected to its sockets.
func TestStopWithIdleClients(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	for _, path := range []string{r.Addrs().API, r.Addrs().XDS} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "\x00garbage"); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestHangup(t *testing.T) {
	dir := agenttest.ShortDir(t)
	file := filepath.Join(dir, "agent.yaml")
	agenttest.Write(t, file, "node: {zone: one}\n")
	o := agenttest.Options(dir)
	o.File = file
	hup := make(chan os.Signal)
	r := agenttest.Up(t, dir, agent.Deps{Hangup: hup, Reload: o}, "node.zone=one")
	say := func(words ...string) {
		t.Helper()
		hup <- syscall.SIGHUP
		agenttest.Await(t, "the log says "+strings.Join(words, ", "), r.Logs.Ch, func() bool {
			for _, w := range words {
				if !strings.Contains(r.Logs.String(), w) {
					return false
				}
			}
			return true
		})
	}
	// The group must be set because the default differs for an agent without a config file.
	agenttest.Write(t, file, "node: {zone: two}\nlog: {level: debug}\napi: {socket: {group: \"\"}}\n")
	say("key=node.zone from=one to=two", "needs a restart", "key=log.level from=info to=debug")
	if c := r.Config(); c.Node.Zone != "one" || c.Log.Level != "debug" {
		t.Errorf("after the reload: zone %q, level %q", c.Node.Zone, c.Log.Level)
	}
	agenttest.Write(t, file, "nod: {}\n")
	say("is not applied", "nod: is not a key")
	if c := r.Config(); c.Log.Level != "debug" {
		t.Errorf("a config with faults was taken over: %+v", c.Log)
	}
	// The signal makes the agent scan the resource directory.
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	agenttest.Write(t, filepath.Join(dir, "resources", "a.yaml"), agenttest.Meshes("a"))
	r.Want("a@a.yaml")
}

// TestStateCannotBeWritten runs an agent on a state directory in which no files can be created.
func TestStateCannotBeWritten(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Write(t, filepath.Join(dir, "file"), "")
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	agenttest.Write(t, filepath.Join(dir, "resources", "web.yaml"), agenttest.WebFile("a"))
	r := agenttest.Up(t, dir, agent.Deps{}, "paths.state=file/state")
	if got := agenttest.Next(t, r.Ask(&core.Node{Id: "default.web"}, nil), map[string]string{}); got != "a localhost:80" {
		t.Errorf("clusters: %q", got)
	}
	st, err := r.Api().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	said := false
	for _, c := range st.Checks {
		said = said || strings.Contains(c.Reason, "in memory")
	}
	if !said || !st.Ready {
		t.Errorf("ready %v, checks: %+v", st.Ready, st.Checks)
	}
	if _, err := r.Api().Apply(t.Context(), []byte(agenttest.Meshes("m")), false); err == nil {
		t.Error("an API write that cannot be durable was acknowledged")
	}
}

func TestDamagedState(t *testing.T) {
	dir := agenttest.ShortDir(t)
	agenttest.Do(t, os.Mkdir(filepath.Join(dir, "state"), 0o700), os.Mkdir(filepath.Join(dir, "resources"), 0o755))
	agenttest.Do(t,
		os.WriteFile(filepath.Join(dir, "state", "nearside.db"), []byte(strings.Repeat("garbage ", 10_000)), 0o600))
	agenttest.Write(t, filepath.Join(dir, "resources", "a.yaml"), agenttest.Meshes("a"))
	r := agenttest.Up(t, dir, agent.Deps{})
	if got := agenttest.Held(r.Store()); got != "a@a.yaml" {
		t.Errorf("started with %q", got)
	}
	st, err := r.Api().Status(t.Context())
	if err != nil || !strings.Contains(fmt.Sprint(st.Checks), "set aside") {
		t.Errorf("status: %+v %v", st, err)
	}
}

func TestToken(t *testing.T) {
	dir := agenttest.ShortDir(t)
	token := filepath.Join(dir, "token")
	set := []string{"api.tcp=127.0.0.1:0", "api.tokenFile=" + token}
	if got := agenttest.Refused(t, dir, set...); !strings.Contains(got, "api.tokenFile") {
		t.Errorf("without the file: %s", got)
	}
	agenttest.WriteSecret(t, token, "short\n")
	if got := agenttest.Refused(t, dir, set...); !strings.Contains(got, "at least 16") {
		t.Errorf("with a short token: %s", got)
	}
	agenttest.WriteSecret(t, token, "0123456789abcdef\n")
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		agenttest.Do(t, os.Chmod(token, mode))
		if got := agenttest.Refused(t, dir, set...); !strings.Contains(got,
			fmt.Sprintf("%s has the mode %#o", token, mode)) || !strings.Contains(got, "chmod 0600") {
			t.Errorf("with the mode %#o: %s", mode, got)
		}
	}
	agenttest.Do(t, os.Chmod(token, 0o600))
	agenttest.Up(t, dir, agent.Deps{}, set...)
}

// TestNotifyReload checks that the agent reports a reload with its start time and reports READY at
// the end, as systemd requires for Type=notify-reload.
func TestNotifyReload(t *testing.T) {
	dir := agenttest.ShortDir(t)
	hup, said := make(chan os.Signal), make(chan string, 16)
	agenttest.Up(t, dir, agent.Deps{Hangup: hup, Reload: agenttest.Options(dir), Notify: func(s string) { said <- s }})
	<-said // READY
	hup <- syscall.SIGHUP
	if got := <-said; !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*\nSTATUS=`).MatchString(got) {
		t.Errorf("at the begin it said %q", got)
	}
	if got := <-said; !strings.HasPrefix(got, "READY=1\nSTATUS=") {
		t.Errorf("at the end it said %q", got)
	}
}

func TestNotify(t *testing.T) {
	var mu sync.Mutex
	var said []string
	r := agenttest.Up(t, agenttest.ShortDir(t),
		agent.Deps{Notify: func(s string) { mu.Lock(); defer mu.Unlock(); said = append(said, s) }})
	// READY is sent once the sockets are open, before any other work continues.
	agenttest.Do(t, r.Stop())
	if len(said) != 2 || !strings.HasPrefix(said[0], "READY=1\nSTATUS=no proxy is connected; ") ||
		!strings.HasPrefix(said[1], "STOPPING=1\nSTATUS=") {
		t.Errorf("said %q", said)
	}
	if _, err := r.Store().Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true}); !errors.Is(err,
		store.ErrClosed) {
		t.Errorf("the store after the end: %v", err)
	}
}
