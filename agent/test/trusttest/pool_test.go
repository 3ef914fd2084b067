package trusttest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// gossipKey returns the key of the pools.
func gossipKey() []byte { return bytes.Repeat([]byte{1}, 32) }

// honest is an agent of the pool under attack.
type honest struct {
	*agenttest.Running
	name string
	id   engine.NodeID
	set  []string
}

// addr returns its address in the pool.
func (h *honest) addr() netip.AddrPort { return h.Addrs().Gossip }

// start starts an agent of a pool in its directory.
func start(t testing.TB, dir, name, seed string, set ...string) *honest {
	t.Helper()
	path := filepath.Join(dir, "keyring")
	agenttest.WriteSecret(t, path, "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n")
	set = append([]string{"node.name=" + name, "gossip.bind=" + agenttest.Loopback() + ":7946",
		"gossip.keyringFile=" + path}, set...)
	if seed != "" {
		set = append(set, "gossip.join="+seed)
	}
	h := &honest{Running: agenttest.Up(t, dir, agent.Deps{}, set...), name: name, set: set}
	h.id = nodeID(t, h)
	return h
}

// nodeID returns the ID of an agent's node.
func nodeID(t testing.TB, h *honest) engine.NodeID {
	t.Helper()
	members, err := h.Api().Members(t.Context())
	agenttest.Do(t, err)
	for _, m := range members.Items {
		if m.Self {
			id, err := engine.ParseNodeID(m.ID)
			agenttest.Do(t, err)
			return id
		}
	}
	t.Fatal("the agent does not list itself")
	return engine.NodeID{}
}

// meshText is the mesh of the pools: each node has its own CA, which the proxies of all trust.
const meshText = `
type: Mesh
name: default
mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin, mode: STRICT}]}
---
type: MeshTrafficPermission
mesh: default
name: nobody
spec: {targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {action: Deny}}]}
`

// proxyText is a proxy of a service with an outbound to another one.
func proxyText(name, address, to string) string {
	return fmt.Sprintf("type: Dataplane\nmesh: default\nname: %s\nnetworking:\n  address: %s\n"+
		"  inbound: [{port: 80, tags: {kuma.io/service: %[1]s}}]\n"+
		"  outbound: [{port: 20000, tags: {kuma.io/service: %[3]s}}]\n", name, address, to)
}

func timeoutText(name, idle string) string {
	return "type: MeshTimeout\nmesh: default\nname: " + name +
		"\nspec:\n  targetRef: {kind: Mesh}\n  to: [{targetRef: {kind: Mesh}, default: {idleTimeout: " + idle + "}}]\n"
}

var (
	permissionKey = resource.Key{Kind: "MeshTrafficPermission", Mesh: "default", Name: "nobody"}
	backKey       = resource.Key{Kind: "Dataplane", Mesh: "default", Name: "back"}
)

// scene is a pool of two agents: b has the proxy web, which calls the service back of a.
type scene struct {
	t    testing.TB
	a, b *honest
	dir  map[string]string

	canaries int
	enforced bool // agents answer only their members
}

// newScene starts the pool, and waits until both agents have everything.
func newScene(t testing.TB, set ...string) *scene {
	t.Helper()
	s := &scene{t: t, dir: map[string]string{"a": agenttest.ShortDir(t), "b": agenttest.ShortDir(t)}}
	s.a = start(t, s.dir["a"], "a", "", set...)
	s.b = start(t, s.dir["b"], "b", s.a.addr().String(), set...)
	agenttest.Apply(t, s.a.Agent, meshText+"---\n"+proxyText("back", "10.0.0.1", "web"))
	s.has(s.b, backKey, "peer:a")
	s.has(s.b, permissionKey, "gossip:a")
	agenttest.Apply(t, s.b.Agent, proxyText("web", "10.0.0.2", "back"))
	s.has(s.a, resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web"}, "peer:b")
	s.awaitRest()
	return s
}

// has waits until an agent has a resource from a source. Hostile members can delay it, because they
// do not forward changes.
func (s *scene) has(h *honest, k resource.Key, from string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), agenttest.Patience)
	defer cancel()
	if !await(ctx, func() bool {
		rec, ok := h.Store().Snapshot().Get(k)
		return ok == (from != "") && (!ok || rec.Source.String() == from)
	}) {
		s.t.Fatalf("agent %s does not get %s from %q; it has:\n%s\nlog:\n%s",
			h.name, k, from, h.list(), tail(h.Logs.String()))
	}
}

// tail returns the end of a text.
func tail(text string) string { return text[max(0, len(text)-3000):] }

// list returns the resources of an agent.
func (h *honest) list() string {
	var b strings.Builder
	for _, rec := range h.Store().Snapshot().Records() {
		if !strings.HasPrefix(rec.Key.Name, canary) {
			fmt.Fprintf(&b, "%s from %s: %x\n", rec.Key, rec.Source, rec.Digest)
		}
	}
	return b.String()
}

// awaitRest waits until both agents trust both CAs and their views stay the same.
func (s *scene) awaitRest() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), agenttest.Patience)
	defer cancel()
	var last string
	since := time.Now()
	if !await(ctx, func() bool {
		now := s.view()
		if now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond && strings.Count(now, "\ntrusts ") >= 4
	}) {
		s.t.Fatalf("the pool does not settle:\n%s", last)
	}
}

// view describes what both agents have and publish: resources with their sources, and the config of
// their Envoys, which are computed from the present resources.
func (s *scene) view() string {
	s.t.Helper()
	for _, h := range []*honest{s.a, s.b} {
		revision := h.Store().Snapshot().Revision()
		agenttest.Eventually(s.t, "agent "+h.name+" computes configs", func() bool {
			return h.Last() != nil && h.Last().Revision >= revision
		})
	}
	return s.a.view(s.t) + s.b.view(s.t)
}

func (h *honest) view(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "agent %s\n%s", h.name, h.list())
	b.WriteString(h.standing(t))
	proxy := map[string]string{"a": "back", "b": "web"}[h.name]
	_, config := h.Request("GET", "http://nearside/meshes/default/dataplanes/"+proxy+"/_config", "")
	var doc any
	if json.Unmarshal([]byte(config), &doc) == nil {
		out, _ := json.MarshalIndent(doc, "", " ")
		config = string(out)
	}
	for line := range strings.SplitSeq(config, "\n") {
		if !strings.Contains(line, "inlineBytes") { // secrets depend on streams; see trusted
			b.WriteString(line + "\n")
		}
	}
	for _, line := range h.trusted(t, "default."+proxy) {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// standing describes the trust of an agent, and the members in use.
func (h *honest) standing(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	x := h.trustOf(t)
	fmt.Fprintf(&b, "trust mode %s, admits %s\n", x.Mode, x.Admit)
	if x.File != nil {
		fmt.Fprintf(&b, "trust file %x\n", sha256.Sum256([]byte(x.File.Text)))
	}
	for _, n := range x.Nodes {
		if n.Enrolled {
			fmt.Fprintf(&b, "enrolled %s %s\n", n.Name, n.ID)
		}
	}
	if x.Mode != trust.ModeEnforce {
		return b.String() // the agent would ask a hostile member, which does not answer
	}
	members, err := h.Api().Members(t.Context())
	agenttest.Do(t, err)
	for _, m := range members.Items {
		if m.State == api.MemberAlive && m.Version != hostileVersion {
			fmt.Fprintf(&b, "member %s %s at %s\n", m.Name, m.ID, m.Address)
		}
	}
	return b.String()
}

// trusted returns hashes of the CAs that an agent makes a proxy trust, sorted. It opens a stream as
// an Envoy does.
func (h *honest) trusted(t testing.TB, id string) (out []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), agenttest.Patience)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+h.Addrs().XDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	agenttest.Do(t, err)
	defer conn.Close()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	agenttest.Do(t, err)
	agenttest.Do(t, stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: id}, TypeUrl: draft.TypeSecret,
		ResourceNamesSubscribe: []string{caSecret}}))
	resp, err := stream.Recv()
	agenttest.Do(t, err)
	for _, r := range resp.Resources {
		var secret tls.Secret
		agenttest.Do(t, r.Resource.UnmarshalTo(&secret))
		rest := secret.GetValidationContext().GetTrustedCa().GetInlineBytes()
		for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
			out = append(out, fmt.Sprintf("trusts %x", sha256.Sum256(block.Bytes)))
		}
	}
	slices.Sort(out)
	return out
}

const caSecret = "mesh_ca:secret:default"

// difference returns the lines of two texts that differ.
func difference(before, after string) string {
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	var out []string
	for _, l := range old {
		if !slices.Contains(now, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range now {
		if !slices.Contains(old, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out[:min(len(out), 40)], "\n")
}

// canary is the prefix of the names of meshes that the pool writes to show that it works.
const canary = "canary"

// works checks that each agent accepts a write of a mesh and of a proxy, and that the other one
// gets them. Both have then processed all earlier messages.
func (s *scene) works() {
	s.t.Helper()
	for _, x := range [][2]*honest{{s.a, s.b}, {s.b, s.a}} {
		s.canaries++
		name := fmt.Sprintf("%s-%d", canary, s.canaries)
		s.write(x[0], "type: Mesh\nname: "+name+"\n---\n"+proxyText(name, "10.1.0.1", "web"))
		s.has(x[1], resource.Key{Kind: "Mesh", Name: name}, "gossip:"+x[0].name)
		s.has(x[1], resource.Key{Kind: "Dataplane", Mesh: "default", Name: name}, "peer:"+x[0].name)
	}
}

// write applies documents by the API of an agent.
func (s *scene) write(h *honest, text string) {
	s.t.Helper()
	code, body := h.Request("POST", "http://nearside/v1/apply", text, "Content-Type: application/yaml")
	if code != 200 {
		s.t.Errorf("agent %s refuses a write: %d %s", h.name, code, body)
	}
}
