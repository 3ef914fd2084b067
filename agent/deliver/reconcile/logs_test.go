package reconcile_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// logs implements reconcile.Logs. It returns missing, and records the calls.
type logs struct {
	missing  map[string]string // by target
	writes   map[string]bool   // by target: the Envoy writes the file
	wait     map[string]bool   // by node ID
	asked    []string
	left     []string
	unlogged []string // node, listener, and reason
}

func (l *logs) Prepare(key node.Key, pipes []draft.Pipe) (map[string]status.Missing, bool) {
	out := map[string]status.Missing{}
	var targets []string
	for i := range pipes {
		targets = append(targets, pipes[i].Target)
		if why := l.missing[pipes[i].Target]; why != "" {
			out[pipes[i].ID()] = status.Missing{Reason: why, EnvoyWrites: l.writes[pipes[i].Target]}
		}
	}
	slices.Sort(targets)
	l.asked = append(l.asked, fmt.Sprint("prepare ", key.ID, " ", targets))
	return out, l.wait[key.ID]
}

func (l *logs) Unlogged(key node.Key, listeners map[string]string, _ func(string) bool) {
	for name, reason := range listeners {
		l.unlogged = append(l.unlogged, key.ID+" "+name+": "+reason)
	}
}

func (l *logs) Left(key node.Key) { l.left = append(l.left, key.ID) }

// ordered records publications together with the calls of logs.
type ordered struct {
	*agenttest.Publisher
	l *logs
}

func (o ordered) Publish(m map[node.Key]rollout.Config) {
	o.l.asked = append(o.l.asked, fmt.Sprint("publish ", len(m)))
	o.Publisher.Publish(m)
}

const twoLogs = "{type: MeshAccessLog, mesh: default, name: logs, spec: {targetRef: {kind: Mesh}, " +
	"from: [{targetRef: {kind: Mesh}, default: {backends: [{type: Tcp, tcp: {address: 'one:1'}}, {type: File, " +
	"file: {path: /var/log/a, rotation: {maxFiles: %d}}}, {type: OpenTelemetry, openTelemetry: {endpoint: otel}}]}}]}}\n"

func mentions(s *draft.Sealed) (out []string) {
	for _, text := range []string{"accesslog", "otlp.sock", "/access/"} {
		for _, list := range s.Resources {
			if slices.ContainsFunc(list, func(r *draft.Resource) bool { return bytes.Contains(r.Body(), []byte(text)) }) {
				out = append(out, text)
				break
			}
		}
	}
	return out
}

// TestLogsAreReadyFirst checks that destinations are prepared before a config is published, and
// that a destination that is not ready disables only its logger, until it is ready.
func TestLogsAreReadyFirst(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, fmt.Sprintf(twoLogs, 3))
	l := &logs{missing: map[string]string{}}
	p := agenttest.NewPublisher("default.web")
	r := reconcile.New(reconcile.Options{Store: s, Publisher: ordered{p, l}, Logs: l})
	if got := agenttest.Pass(r); got != nil {
		t.Fatal(got)
	}
	if got, want := strings.Join(l.asked, "; "),
		"prepare default.web [/var/log/a one:1 otel:4317]; publish 1"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	whole := p.Of("default.web")

	l.missing["one:1"] = "FIFO: it is a directory; remove it"
	got := agenttest.Pass(r)
	if len(got) != 1 ||
		!strings.HasPrefix(got[0], "warning Dataplane/default/web: the access log of MeshAccessLog/default/logs to tcp ") ||
		!strings.HasSuffix(got[0], "one:1 is disabled: FIFO: it is a directory; remove it") {
		t.Errorf("problems: %q", got)
	}
	less := p.Of("default.web")
	if len(less.Pipes) != 2 || less.Versions[draft.RankListener] == whole.Versions[draft.RankListener] ||
		less.Versions[draft.RankCluster] != whole.Versions[draft.RankCluster] {
		t.Errorf("published with %+v", less.Pipes)
	}
	if agenttest.Pass(r); p.Of("default.web") != less {
		t.Error("another config is published without a change")
	}
	if shown := r.Last().Published[node.Key{ID: "default.web", Flavor: node.FlavorEnvoy}]; shown == nil ||
		shown.Sealed != less {
		t.Error("the result has another config than the published one")
	}

	l.missing["/var/log/a"], l.missing["otel:4317"] = "no room", "no socket"
	if got := agenttest.Pass(r); len(got) != 3 ||
		!strings.Contains(strings.Join(got, "\n"), "directly to the collector, so they are lost while it is unavailable") {
		t.Errorf("problems: %q", got)
	}
	if got := mentions(p.Of("default.web")); !slices.Equal(got, []string{"accesslog"}) { // the cluster of the collector
		t.Errorf("left: %q", got)
	}
	clear(l.missing)
	if got := agenttest.Pass(r); got != nil || p.Of("default.web") != whole {
		t.Errorf("all is ready: %q", got)
	}
}

// TestConfigWaitsForLogs checks that a config is not published while its log destinations are not
// decided, that other proxies are published meanwhile, and that a policy is late then.
func TestConfigWaitsForLogs(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, fmt.Sprintf(twoLogs, 3))
	l := &logs{missing: map[string]string{"one:1": status.NotReady}, wait: map[string]bool{"default.web": true}}
	p := agenttest.NewPublisher("default.web", "default.other")
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p, Logs: l})
	r.Pass()
	web := node.Key{ID: "default.web", Flavor: node.FlavorEnvoy}
	if p.Of("default.web") != nil || p.Of("default.other") == nil || r.Last().Published[web] != nil {
		t.Fatal("the proxy did not wait for its logger, or another one did")
	}
	if got := r.Last().LeftOut[web]; len(got) != 1 || got[0].Reason != status.NotReady {
		t.Errorf("left out: %+v", got)
	}
	clear(l.missing)
	clear(l.wait)
	r.Pass()
	whole := p.Of("default.web")
	if len(whole.Pipes) != 3 {
		t.Errorf("published with %+v", whole.Pipes)
	}
	l.missing["/var/log/a"], l.wait["default.web"] = status.NotReady, true
	agenttest.ByAPI(t, s, fmt.Sprintf(twoLogs, 4))
	if r.Pass(); p.Of("default.web") != whole {
		t.Error("the config was published before its loggers were ready")
	}
	l.unlogged = nil
	clear(l.wait) // the limit has passed
	if r.Pass(); len(p.Of("default.web").Pipes) != 2 {
		t.Errorf("after the limit: %+v", p.Of("default.web").Pipes)
	}
	if got := strings.Join(l.unlogged, "; "); !strings.Contains(got, "default.web inbound:10.0.0.1:") ||
		!strings.Contains(got, "file /var/log/a: "+status.NotReady) {
		t.Errorf("without a logger: %s", got)
	}
	l.unlogged, l.missing = nil, map[string]string{"otel:4317": "no socket"}
	if r.Pass(); len(l.unlogged) > 0 {
		t.Errorf("Envoy sends the records itself: %v", l.unlogged)
	}
}

// TestUnloggedListeners checks that each listener without its logger has the reason of the
// destination that it uses.
func TestUnloggedListeners(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, "{type: ExternalService, mesh: default, name: redis, tags: {kuma.io/service: redis, "+
		"kuma.io/protocol: tcp}, networking: {address: 'redis.example:6379'}}\n---\n"+
		"{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, servicePort: 81, "+
		"tags: {kuma.io/service: web}}], outbound: [{port: 6379, tags: {kuma.io/service: redis}}]}}\n---\n"+
		"{type: MeshAccessLog, mesh: default, name: logs, spec: {targetRef: {kind: Mesh}, "+
		"from: [{targetRef: {kind: Mesh}, default: {backends: [{type: Tcp, tcp: {address: 'one:1'}}]}}], "+
		"to: [{targetRef: {kind: Mesh}, default: {backends: [{type: Tcp, tcp: {address: 'two:2'}}]}}]}}")
	l := &logs{missing: map[string]string{"one:1": "the first reason", "two:2": "the second reason"}}
	r := reconcile.New(reconcile.Options{Store: s, Publisher: agenttest.NewPublisher("default.web"), Logs: l})
	r.Pass()
	slices.Sort(l.unlogged)
	want := []string{"default.web inbound:10.0.0.1:80: tcp one:1: the first reason",
		"default.web outbound:127.0.0.1:6379: tcp two:2: the second reason"}
	if !slices.Equal(l.unlogged, want) {
		t.Errorf("%q, want %q", l.unlogged, want)
	}
}

// TestLogsFollowTheConfig checks that changed limits of a file are passed to Logs although the
// config has the same bytes, and that Logs is notified when a proxy is gone.
func TestLogsFollowTheConfig(t *testing.T) {
	s := agenttest.TwoProxies(t)
	agenttest.ByAPI(t, s, fmt.Sprintf(twoLogs, 3))
	l := &logs{}
	p := agenttest.NewPublisher("default.web")
	r := reconcile.New(reconcile.Options{Store: s, Publisher: p, Logs: l})
	r.Pass()
	before := p.Of("default.web")
	agenttest.ByAPI(t, s, fmt.Sprintf(twoLogs, 4))
	r.Pass()
	limits := func(s *draft.Sealed) (out int) {
		for _, p := range s.Pipes {
			if p.Kind == draft.PipeFile {
				out = p.Rotation.MaxFiles
			}
		}
		return out
	}
	if after := p.Of("default.web"); after.Versions != before.Versions || limits(before) != 3 || limits(after) != 4 {
		t.Errorf("limits %d and then %d; versions %v and then %v", limits(before), limits(after), before.Versions,
			after.Versions)
	}
	del(t, s, "MeshAccessLog", "logs")
	l.asked = nil
	r.Pass()
	if got := strings.Join(l.asked, "; "); got != "prepare default.web []" || len(l.left) > 0 {
		t.Errorf("after the policy: %s; left %v", got, l.left)
	}
	del(t, s, "Dataplane", "web")
	if r.Pass(); !slices.Equal(l.left, []string{"default.web"}) {
		t.Errorf("left: %v", l.left)
	}
}

func del(t *testing.T, s *store.Store, kind, name string) {
	t.Helper()
	key := resource.Key{Kind: kind, Mesh: "default", Name: name}
	if _, err := s.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI},
		Ops: []store.Op{{Delete: key}}}); err != nil {
		t.Fatal(err)
	}
}
