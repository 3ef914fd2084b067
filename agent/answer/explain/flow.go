package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Traffic explains connections and requests of the dataplanes of one mesh. It makes the config of
// each of them once, when it is first needed, and is for one goroutine.
type Traffic struct {
	mesh    *generate.Mesh
	memo    *generate.Memo
	proxies map[string]*flowProxy
	inbound map[netip.AddrPort]inboundOf
	// egresses are those of the zone by their address, nil where none is there, once they were needed.
	egresses map[netip.AddrPort]*flowProxy
	shadow   *Traffic

	// Build returns what the Envoy of a dataplane says of itself, nil where that is not known. Nil: of
	// none it is.
	Build func(dataplane string) *finding.Build
	// OtherMesh reports whether a dataplane of another mesh is at an address. Nil: that is not known.
	OtherMesh func(netip.AddrPort) bool
	// Names returns the names of all meshes, nil where none were made yet. Nil: names of the mesh and
	// those that end in .mesh alone are known.
	Names func() *names.Table
	live  func(dataplane string) *Live // nil: the config that is made decides
}

// flowProxy is a dataplane whose config is followed.
type flowProxy struct {
	dataplane *resource.Resource
	spec      *resource.Dataplane
	config    *match.Config
	snapshot  *envoy.Snapshot
	outbounds []mesh.Outbound
	rules     *policy.Rules // nil: the mesh has no policies
	clusters  map[string]*clusterFacts
	live      *Live                               // nil: snapshot is what was made
	made      *match.Config                       // that the Envoy has not as it is; nil where nothing is held
	owners    map[draft.ResourceID][]resource.Key // once they were needed
}

// inboundOf is the inbound of a dataplane at an address.
type inboundOf struct {
	dataplane string
	listener  netip.AddrPort // where the dataplane itself has it
}

// NewTraffic prepares explanations.
func NewTraffic(m *generate.Mesh) *Traffic {
	return &Traffic{mesh: m, memo: generate.NewMemo(), proxies: map[string]*flowProxy{}}
}

// Connection explains a connection. It fails with a [QuestionError], and with a
// [generate.NotFoundError] when the mesh has no such dataplane.
func (t *Traffic) Connection(q *ConnectionQuestion) (*Flow, error) {
	return t.ask(&q.Target, func(d *dialled) (*inquiry, error) {
		in := &inquiry{first: match.PlainBytes}
		if q.Silent {
			if q.TLS {
				return nil, &QuestionError{"silent", "is true, and a client of TLS speaks first: leave one of the two out"}
			}
			in.first = match.ServerFirst
		}
		if !q.TLS {
			if q.SNI != nil || len(q.ALPN) > 0 {
				return nil, &QuestionError{"tls",
					"is false, and sni and alpn are parts of a TLS handshake: set it, or leave them out"}
			}
			return in, nil
		}
		in.first, in.alpn = match.TLSHello, q.ALPN
		switch {
		case q.SNI != nil:
			in.sni = *q.SNI
		case d.name:
			in.sni = d.host
		}
		if in.sni != "" {
			if reason := hostFault(strings.ToLower(in.sni)); reason != "" {
				return nil, &QuestionError{"sni", fmt.Sprintf("%q %s", clip.Text(in.sni, maxShown), reason)}
			}
		}
		return in, nil
	})
}

// Request explains a request. It fails as [Traffic.Connection] does.
func (t *Traffic) Request(q *RequestQuestion) (*Flow, error) {
	return t.ask(&q.Target, func(d *dialled) (*inquiry, error) {
		req := &match.Request{Method: cmp.Or(q.Method, "GET"), Path: cmp.Or(q.Path, "/"), Host: authority(q.To)}
		if !strings.HasPrefix(req.Path, "/") && req.Path != "*" {
			return nil, &QuestionError{"path", fmt.Sprintf("%q does not begin with a slash", clip.Text(q.Path, maxShown))}
		}
		if strings.ContainsFunc(req.Method, func(r rune) bool {
			return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
		}) {
			return nil, &QuestionError{"method",
				fmt.Sprintf("%q is no method: letters, digits and -_.!#$%%&'*+^`|~ are possible", clip.Text(q.Method, maxShown))}
		}
		for i, h := range q.Headers {
			switch {
			case h.Name == "" || strings.HasPrefix(h.Name, ":") || strings.ContainsAny(h.Name+h.Value, "\r\n\x00"):
				return nil, &QuestionError{fmt.Sprintf("headers[%d]", i),
					fmt.Sprintf("%q: %q cannot be sent; give a header by its name",
						clip.Text(h.Name, maxShown), clip.Text(h.Value, maxShown))}
			case strings.EqualFold(h.Name, "host"):
				req.Host = h.Value
			default:
				req.Headers = append(req.Headers, match.Header{Name: h.Name, Value: h.Value})
			}
		}
		in := &inquiry{first: match.HTTP11, req: req}
		switch {
		case q.HTTP2 && q.HTTP10:
			return nil, &QuestionError{"http10", "is true beside http2: leave one of the two out"}
		case q.HTTP2:
			in.first = match.H2C
		case q.HTTP10:
			in.first = match.HTTP10
		}
		return in, nil
	})
}

// authority is the host of a request to HOST:PORT, without the port that http has by itself (RFC
// 9110, section 7.2).
func authority(to string) string {
	host, _ := strings.CutSuffix(to, ":80")
	return host
}

// inquiry is a question as the client's side of it.
type inquiry struct {
	first match.FirstBytes
	sni   string
	alpn  []string
	req   *match.Request // nil for a connection
}

func (t *Traffic) ask(target *Target, read func(*dialled) (*inquiry, error)) (*Flow, error) {
	p, err := t.proxy(target.From)
	if err != nil {
		return nil, err
	}
	d, err := p.dial(t.mesh.View, target)
	if err != nil {
		return nil, err
	}
	in, err := read(&d)
	if err != nil {
		return nil, err
	}
	missing, why := p.unreachable(t, &d)
	flow := t.nowhere(p, &d)
	if flow == nil {
		flow = t.follow(p, &d, in)
		t.noPort(flow, &d)
		if missing != nil {
			t.notReached(p, flow, missing, why)
		} else if flow.Verdict != VerdictAllowed {
			t.notAdmittedOutside(p, flow)
		}
		if flow.Verdict != VerdictAllowed {
			flow.Suggest = t.suggest(p, target, &d, in, flow)
		}
	}
	if target.Shadow {
		if err := t.withShadow(flow, target, read); err != nil {
			return nil, err
		}
	}
	return flow, nil
}

// withShadow adds the answer with the shadow policies in force.
func (t *Traffic) withShadow(flow *Flow, target *Target, read func(*dialled) (*inquiry, error)) error {
	if t.shadow == nil {
		if m := t.mesh.Shadow(); m == t.mesh {
			t.shadow = t
		} else {
			t.shadow = NewTraffic(m)
			t.shadow.Build, t.shadow.OtherMesh, t.shadow.Names = t.Build, t.OtherMesh, t.Names
		}
	}
	as := *target
	as.Shadow = false
	var err error
	if flow.Shadow, err = t.shadow.ask(&as, read); err != nil {
		return err
	}
	flow.Parts = firstDifference(flow, flow.Shadow)
	return nil
}

// firstDifference returns the first step of which two flows have another outcome, "" for none.
func firstDifference(a, b *Flow) string {
	if at := stepDifference(&a.Way, &b.Way); at != "" {
		return at
	}
	for i := range min(len(a.Servers), len(b.Servers)) {
		if at := stepDifference(&a.Servers[i], &b.Servers[i]); at != "" {
			return at
		}
	}
	if a.Verdict != b.Verdict || len(a.Servers) != len(b.Servers) {
		return "servers"
	}
	return ""
}

func stepDifference(a, b *Way) string {
	n := min(len(a.Steps), len(b.Steps))
	for i := range n {
		s, o := &a.Steps[i], &b.Steps[i]
		// the same one, with endpoints or without
		if s.At != o.At || s.Chose != o.Chose || s.At == "cluster" && s.Note != o.Note {
			return s.At
		}
	}
	for _, s := range slices.Concat(a.Steps[n:], b.Steps[n:]) {
		return s.At // one of the two ends before
	}
	return ""
}

// proxy makes the config of a dataplane.
func (t *Traffic) proxy(name string) (*flowProxy, error) {
	if p, ok := t.proxies[name]; ok {
		return p, nil
	}
	cfg, err := generate.Generate(generate.Input{Mesh: t.mesh, Name: name, Flavor: node.FlavorEnvoy}, nil, t.memo)
	if err != nil {
		return nil, err
	}
	r := t.mesh.View.Dataplane(name)
	spec, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return nil, fmt.Errorf("%s: unexpected spec %T", r.Key, r.Spec)
	}
	p := &flowProxy{dataplane: r, spec: spec, snapshot: cfg.Snapshot(), clusters: map[string]*clusterFacts{}}
	facts := &finding.Facts{}
	if t.Build != nil {
		facts.Build = t.Build(name)
	}
	p.config = match.Open(p.snapshot, facts)
	if t.live != nil {
		p.use(t.live(name), facts)
	}
	p.outbounds, _ = t.mesh.View.Outbounds(r)
	if t.mesh.Policies != nil {
		p.rules = t.mesh.Policies.Rules(r)
	}
	t.proxies[name] = p
	return p, nil
}

// follow goes the whole way: through the proxy of the client, and those of the servers that it
// leads to.
func (t *Traffic) follow(p *flowProxy, d *dialled, in *inquiry) *Flow {
	conn := p.connect(d.dst)
	conn.First, conn.SNI, conn.ALPN = in.first, in.sni, in.alpn
	trace := p.trace(conn, in.req)
	a := &about{t: t, p: p, trace: trace, dst: d.dst, in: in, inbound: -1}
	a.outbound = p.outboundAt(trace)
	flow := &Flow{Way: *a.way(conn), Servers: []Way{}}
	if d.note != "" {
		flow.Steps = slices.Insert(flow.Steps, 0, FlowStep{At: "address", Saw: d.host, Chose: d.dst.String(), Note: d.note,
			Eliminated: []Eliminated{}, Policies: a.destination()})
		flow.collect()
	}
	if trace.Outcome == match.NoListener && !p.redirected() && !d.dst.Addr().IsLoopback() {
		flow.Verdict = VerdictAllowed
		flow.Reason = fmt.Sprintf("the dataplane has no transparent proxy and no outbound at %s: the connection does not "+
			"go through its proxy, and nothing of the mesh decides about it", d.dst)
		return flow
	}
	if flow.Verdict == VerdictAllowed {
		t.plainAddress(p, flow, d)
		t.serve(p, flow, in)
		t.beyond(flow, d)
	}
	return flow
}

func (p *flowProxy) trace(conn *match.Conn, req *match.Request) *match.Trace {
	if req == nil {
		return p.config.Connection(conn)
	}
	return p.config.Request(conn, req)
}

// outboundAt finds the outbound whose listener took the connection, nil for none.
func (p *flowProxy) outboundAt(trace *match.Trace) *mesh.Outbound {
	if trace.Listener == nil {
		return nil
	}
	at, ok := strings.CutPrefix(trace.Listener.Resource, "outbound:")
	if !ok {
		return nil
	}
	for i := range p.outbounds {
		if o := &p.outbounds[i]; netip.AddrPortFrom(o.Address, uint16(o.Port)).String() == at {
			return o
		}
	}
	return nil
}
