package envoybin

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// TestLoadRules shows that each load rule is needed: a running Envoy rejects, or crashes at, the
// smallest input that breaks only this rule. testdata/load-rules.yaml has the inputs, and
// statements without one fail the test. The Envoy is that of ENVOY_BIN or PATH.
func TestLoadRules(t *testing.T) {
	found, err := Find(os.Getenv, true)
	if err != nil || found == nil {
		t.Skipf("no Envoy to compare with: set %s (%v)", EnvoyVariable, err)
	}
	path := program(found.Path)
	build := &finding.Build{Version: finding.ParseVersion(versionOf(t, path))}
	newer := !build.Version.Below(1, 37)
	e := startStatic(t, path)
	shown, open := map[int]bool{}, statements(t)
	for i, c := range loadRuleCases(t) {
		where := fmt.Sprintf("input %d, rule %d, %s", i, c.Rule, c.What)
		sent, next, prev := c.resources(t, i)
		var blocking []finding.Finding
		for _, f := range check.Check(prev, next, &finding.Facts{Build: build, StaticClusters: []string{"xds"}}) {
			if f.Severity == finding.Reject || c.Accepted && f.Severity.Blocks() {
				blocking = append(blocking, f)
			}
		}
		if c.Newer && !newer {
			shown[c.Rule] = true
			open = slices.DeleteFunc(open, func(s *statement) bool { return s.newer && s.rule == c.Rule })
			if len(blocking) > 0 {
				t.Errorf("%s: Envoy %v ignores it, but the check has %v", where, build.Version, blocking)
			}
			continue
		}
		if (len(blocking) == 0) != c.Good {
			t.Errorf("%s: the check finds %v", where, blocking)
		}
		for _, f := range blocking {
			if f.Rule != c.Rule {
				t.Errorf("%s: rule %d finds more: %s %s", where, f.Rule, f.Pointer, f.Message)
			}
			open = slices.DeleteFunc(open, func(s *statement) bool { return s.reports(f) })
		}
		shown[c.Rule] = shown[c.Rule] || !c.Good
		message, err := e.rejects(sent)
		switch {
		case errors.Is(err, errExited):
			if !c.Crash {
				t.Errorf("%s: Envoy crashes: %.2000s", where, &e.output)
			}
			e.stop()
			e = startStatic(t, path)
		case err != nil:
			t.Fatalf("%s: %v", where, err)
		case message == "" && !c.Accepted && !c.Good:
			t.Errorf("%s: Envoy accepts it", where)
		case message != "" && (c.Accepted || c.Good):
			t.Errorf("%s: Envoy rejects it: %s", where, message)
		default:
			t.Logf("%s: %.300s", where, message)
		}
	}
	for _, s := range open {
		t.Errorf("no input shows %s", s)
	}
	for _, r := range finding.Rules() {
		if r.Severity == finding.Reject && r.Unchecked == "" && !shown[r.Number] {
			t.Errorf("no input shows rule %d, %s", r.Number, r.Title)
		}
	}
}

// loadRuleCase is an input that breaks a load rule. Its parts are merged into resources without
// findings.
type loadRuleCase struct {
	Rule int
	What string
	// Before is an input that Envoy has already accepted, of the same name if Update is set.
	Before *loadRuleCase
	Update bool
	// Renamed sends a resource by a name, the requested one if any, although it has another one.
	Renamed bool
	Twice   bool // sends the resource twice at once

	Good     bool // the check and Envoy accept it
	Newer    bool // only Envoy 1.37 and later reject it
	Crash    bool // Envoy crashes
	Accepted bool // Envoy accepts it, but does not act on it

	Listener, Chain, Match, TCP, Matcher, Downstream, Manager, Route, Host, Routes object
	Cluster, Upstream, Options, Endpoints, Secret, Discovered                      object
	Network, Filter, Log                                                           object // with the key "type"
	Name                                                                           string
}

// object is a part of a message in JSON form.
type object = map[string]any

func loadRuleCases(t *testing.T) []loadRuleCase {
	data, err := os.ReadFile("testdata/load-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	certs, err := newThrowaway()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]string{string(certs.cert), string(certs.key), strings.Repeat("x", 5000)})
	if err != nil {
		t.Fatal(err)
	}
	var values []json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"CERTIFICATE", "KEY", "LONG"} {
		data = []byte(strings.ReplaceAll(string(data), "$"+name, string(values[i])))
	}
	var out []loadRuleCase
	if err := yaml.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// sentResource is one resource in the order in which Envoy gets it.
type sentResource struct {
	name  string
	m     *anypb.Any
	wait  bool // Envoy asks for it because of the resource before
	times int  // in one response
}

// resources returns the resources of an input, and the same as the next and the accepted config.
func (c *loadRuleCase) resources(t *testing.T, i int) (sent []sentResource, next, prev *envoy.Snapshot) {
	t.Helper()
	next = &envoy.Snapshot{}
	if i == 0 {
		i = 1000
	}
	add := func(s *envoy.Snapshot, kind envoy.Kind, as string, tree object, wait bool) {
		m := decodeObject(t, kind, tree)
		r, err := envoy.NewResource(m)
		if err != nil {
			t.Fatalf("%s: %v", c.What, err)
		}
		x := sentResource{r.Name, &anypb.Any{TypeUrl: kind.URL(), Value: r.Body()}, wait, 1}
		if as != "" {
			other := *r
			other.Name, x.name = as, as
			r = &other
		}
		s[kind] = append(s[kind], r)
		sent = append(sent, x)
	}
	name := c.Name
	if name == "" {
		name = fmt.Sprintf("r%d", i)
	}
	if c.Before != nil {
		to := next
		before := *c.Before
		before.Name = name
		if c.Update {
			to = &envoy.Snapshot{}
			prev = to
		} else {
			before.Name = "before-" + name
		}
		before.build(before.Name, i, func(k envoy.Kind, tree object, wait bool) { add(to, k, "", tree, wait) })
	}
	r, err := envoy.NewResource(decodeObject(t, envoy.KindCluster, goodCluster("static")))
	if err != nil {
		t.Fatal(err)
	}
	next[envoy.KindCluster] = append(next[envoy.KindCluster], r)
	c.build(name, i, func(k envoy.Kind, tree object, wait bool) {
		as := ""
		broken := wait || c.Discovered == nil && c.Endpoints == nil
		switch {
		case c.Renamed && wait:
			as = name
		case c.Renamed && broken:
			as = "other-" + name
		}
		add(next, k, as, tree, wait)
		if c.Twice && broken {
			next[k] = append(next[k], next[k][len(next[k])-1])
			sent[len(sent)-1].times = 2
		}
	})
	return sent, next, prev
}

func decodeObject(t *testing.T, kind envoy.Kind, tree object) proto.Message {
	t.Helper()
	text, err := json.Marshal(withTypes(tree))
	if err != nil {
		t.Fatal(err)
	}
	m := kind.New()
	if err := protojson.Unmarshal(text, m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// rejects sends resources one after the other and returns the message about the last one. If Envoy
// asks for a resource because of the one before, it may answer to both only later.
func (e *liveEnvoy) rejects(list []sentResource) (message string, err error) {
	for i, x := range list {
		name := ""
		if x.wait {
			name = list[i-1].name
		}
		if err := e.wait(x.m.GetTypeUrl(), name); err != nil {
			return "", err
		}
		nonce, err := e.send(x.name, x.m, x.times)
		if err != nil {
			return "", err
		}
		if i+1 < len(list) && list[i+1].wait {
			continue
		}
		if message, err = e.answer(nonce); err != nil {
			return "", err
		}
		if i+1 < len(list) && message != "" {
			return "", fmt.Errorf("Envoy rejects the good resource %s: %s", x.name, message)
		}
	}
	return message, nil
}

// startStatic starts an Envoy that has the cluster "static" by CDS.
func startStatic(t *testing.T, path string) *liveEnvoy {
	t.Helper()
	e := startLive(t, path)
	m := pack(t, envoy.KindCluster, goodCluster("static"))
	if message, err := e.rejects([]sentResource{{"static", m, false, 1}}); err != nil || message != "" {
		t.Fatalf("Envoy rejects the good cluster: %s%v", message, err)
	}
	return e
}

func pack(t *testing.T, kind envoy.Kind, tree object) *anypb.Any {
	t.Helper()
	body, err := proto.Marshal(decodeObject(t, kind, tree))
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: kind.URL(), Value: body}
}
