package problemtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// agentEnv makes this program an agent with a directory and an address for metrics.
const agentEnv = "NEARSIDE_TEST_SCRAPED_AGENT"

const scrapeToken = "A-token-for-metrics-of-32-letters"

// runAgent runs an agent until it receives SIGTERM.
func runAgent(dir, metrics string) error {
	cfg, _, faults := config.Load(agenttest.Options(dir, "metrics.listen="+metrics,
		"metrics.tokenFile="+filepath.Join(dir, "token")))
	if err := faults.Err(); err != nil {
		return err
	}
	a, err := agent.New(cfg, agent.Deps{Log: slog.New(slog.DiscardHandler), Notify: func(string) {}})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return a.Run(ctx)
}

// target is an agent process that is scraped over TCP.
type target struct {
	t            *testing.T
	dir, address string
	cmd          *exec.Cmd
	up, started  []string // samples of up and process_start_time_seconds in the notation of promtool
}

func newTarget(t *testing.T) *target {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	agenttest.Do(t, err, l.Close())
	x := &target{t: t, dir: agenttest.Home(t), address: l.Addr().String()}
	agenttest.WriteSecret(t, filepath.Join(x.dir, "token"), scrapeToken+"\n")
	return x
}

func (x *target) start() {
	self, err := os.Executable()
	agenttest.Do(x.t, err)
	x.cmd = exec.Command(self)
	x.cmd.Env = append(os.Environ(), agentEnv+"="+x.dir+"\n"+x.address)
	x.cmd.Stderr = os.Stderr
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	agenttest.Do(x.t, x.cmd.Start())
	x.t.Cleanup(x.kill)
	agenttest.Eventually(x.t, "the agent serves metrics", func() bool {
		code, _ := x.get(scrapeToken)
		return code == http.StatusOK
	})
}

// kill ends the process as a crash does.
func (x *target) kill() {
	if x.cmd.ProcessState == nil {
		_ = x.cmd.Process.Kill()
		_ = x.cmd.Wait()
	}
}

// get requests the metrics. It returns 0 if there is no answer.
func (x *target) get(token string) (code int, body string) {
	r, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet, "http://"+x.address+"/metrics", nil)
	agenttest.Do(x.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	agenttest.Do(x.t, err)
	return resp.StatusCode, string(b)
}

// scrape adds the samples of a scrape with a token, as Prometheus does.
func (x *target) scrape(token string) {
	code, body := x.get(token)
	up, started := "0", "_"
	if code == http.StatusOK {
		up = "1"
		_, rest, _ := strings.Cut(body, "\nprocess_start_time_seconds ")
		text, _, _ := strings.Cut(rest, "\n")
		at, err := strconv.ParseFloat(text, 64)
		agenttest.Do(x.t, err)
		started = fmt.Sprintf("%f", at)
	}
	x.up, x.started = append(x.up, up), append(x.started, started)
}

// series returns the samples, followed by the last scrape of up for some minutes.
func (x *target) series(minutes int) map[string]string {
	return map[string]string{
		"up":                         strings.Join(x.up, " ") + fmt.Sprintf(" %sx%d", x.up[len(x.up)-1], minutes),
		"process_start_time_seconds": strings.Join(x.started, " "),
	}
}

// TestScrapes checks the alerts about scrapes with an agent that is scraped over TCP: one that
// runs, one that restarts often, one that is down, one that refuses the token, and one that
// Prometheus no longer scrapes.
func TestScrapes(t *testing.T) {
	x := newTarget(t)
	x.start()
	for range 3 {
		x.scrape(scrapeToken)
	}
	const down, often, gone = "NearsideAgentDown", "NearsideAgentRestarts", "NearsideTargetVanished"
	none := map[string]bool{down: false, often: false, gone: false}
	cases := []alertCase{{name: "running", series: x.series(200), fires: none},
		{name: "no longer scraped", series: x.series(70), fires: map[string]bool{down: false, often: false, gone: true}}}

	refuses := &target{t: t, dir: x.dir, address: x.address, up: x.up, started: x.started}
	refuses.scrape("another")
	cases = append(cases, alertCase{name: "refused token", series: refuses.series(200),
		fires: map[string]bool{down: true, often: false, gone: false}})

	x.kill()
	x.start()
	x.scrape(scrapeToken)
	cases = append(cases, alertCase{name: "one restart", series: x.series(200), fires: none})
	for range 3 {
		x.kill()
		x.start()
		x.scrape(scrapeToken)
	}
	cases = append(cases, alertCase{name: "restarts", series: x.series(200),
		fires: map[string]bool{down: false, often: true, gone: false}})
	slow := map[string]string{"up": "1x200",
		"process_start_time_seconds": strings.Join(x.started, "x9 ") + "x130"} // 10 minutes for each scrape
	cases = append(cases, alertCase{name: "slow restarts", series: slow,
		fires: map[string]bool{down: false, often: true, gone: false}})
	x.kill()
	x.scrape(scrapeToken)
	cases = append(cases, alertCase{name: "down", series: x.series(200),
		fires: map[string]bool{down: true, often: true, gone: false}})
	testAlertsUntil(t, "180m", cases)
}

// TestNoTargets checks that an alert fires if Prometheus has no agent to scrape, as with wrong
// service discovery, and that each target of another job does not end it.
func TestNoTargets(t *testing.T) {
	const missing = "NearsideAgentsMissing"
	for job, fires := range map[string]bool{"nearside": false, "node": true} {
		evaluate(t, "40m", map[string]string{fmt.Sprintf("up{job=%q,instance=\"a\"}", job): "1x60"},
			map[string]bool{firing(missing, ""): fires})
	}
}

// holder runs a holder of FIFOs and sockets beside the agent.
func (w *world) holder() {
	run := filepath.Join(w.dir, "run")
	agenttest.Do(w.t, os.MkdirAll(run, 0o755))
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- hold.Serve(ctx, run, hold.ServeOptions{Stay: true, Ready: func() { close(ready) }})
	}()
	w.t.Cleanup(func() { cancel(); agenttest.Do(w.t, <-ended) })
	select {
	case <-ready:
	case <-time.After(agenttest.Patience):
		w.t.Fatal("the holder is not ready")
	}
}

// dataplanes matches documents of Dataplanes.
var dataplanes = regexp.MustCompile(`(?m)^(?:type: Dataplane\n(?:[^-].*\n)*|\{type: Dataplane.*\n)`)

// TestHealthyAgent checks that no alert fires for an agent without problems that uses everything:
// certificates of 30 minutes, DNS, logs, and a pool.
func TestHealthyAgent(t *testing.T) {
	w := &world{t: t, dir: agenttest.Home(t), deps: agent.Deps{Hold: []string{"/bin/false"}}}
	w.holder()
	w.upstream(false)
	access := filepath.Join(w.dir, "logs/web.log")
	resources := strings.NewReplacer("{type: Mesh, name: default}",
		"{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, dpCert: {rotation: "+
			"{expiration: 30m}}, conf: {caCert: {expiration: 10d}}}]}}", "port: 5432", "port: 5432, servicePort: 5433").
		Replace(logging("{type: File, file: {path: " + access + "}}"))
	w.file("a.yaml", resources)
	key := "gossip.keyringFile=" + filepath.Join(w.dir, "keyring")
	agenttest.WriteSecret(t, filepath.Join(w.dir, "keyring"), strings.Repeat("A", 43)+"=\n")
	w.Running = agenttest.Up(t, w.dir, w.deps, append(w.set, "node.name=a", "gossip.bind=127.0.0.1:0", key,
		"auditLog.profile=Default", `accessLog.receivers=[{name: r, address: "127.0.0.1:0", file: in.log}]`)...)
	w.started()
	other := agenttest.Home(t)
	agenttest.WriteSecret(t, filepath.Join(other, "resources/a.yaml"), dataplanes.ReplaceAllString(resources, ""))
	agenttest.Up(t, other, agent.Deps{}, "node.name=b", "gossip.bind=127.0.0.1:0", key,
		"gossip.join="+w.Addrs().Gossip.String())
	for _, id := range []string{"default.web", "default.db"} {
		w.stream(id, "")
		agenttest.InSync(t, w.Agent, id)
	}
	var last float64
	agenttest.Eventually(t, "the pool and the certificates are known", func() bool {
		s := samples(t, w.Running)
		last = s[`nearside_certificate_lifetime_seconds{certificate="proxy",mesh="default"}`]
		return s[`nearside_gossip_members{state="alive"}`] == 2 && last > 0 &&
			s[`nearside_proxies{mesh="default",state="synced"}`] == 2
	})
	if want := (30 * time.Minute).Seconds(); last != want {
		t.Errorf("the lifetime of certificates is %g s, want %g", last, want)
	}
	s, err := w.Api().Status(t.Context())
	agenttest.Do(t, err)
	for _, p := range s.Problems {
		t.Errorf("a healthy agent has the problem %+v", p)
	}
	now := samples(t, w.Running)
	testAlerts(t, []alertCase{{name: "healthy", series: seriesOf(t, now, now, false, w.now()), quiet: true}})
}

// TestEachAlertHasAFault checks that each alert fires in a test with an agent.
func TestEachAlertHasAFault(t *testing.T) {
	found := map[string]bool{"NearsideProblems": true, "NearsideWarnings": true} // of most faults
	for _, f := range everyFault() {
		for _, alert := range strings.Fields(f.alerts) {
			found[alert] = true
		}
	}
	for _, alert := range []string{"NearsideAgentDown", "NearsideAgentRestarts", "NearsideTargetVanished",
		"NearsideAgentsMissing", "NearsideLogFails", "NearsideLogDirectoryReplaced"} {
		found[alert] = true // of TestScrapes, TestNoTargets, and TestAccountAddsUp
	}
	all := alerts(t)
	for _, alert := range all {
		if !found[alert] {
			t.Errorf("no fault of an agent fires %s", alert)
		}
		delete(found, alert)
	}
	for alert := range found {
		t.Errorf("%s is no alert", alert)
	}
}
