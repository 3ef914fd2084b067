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

// Traffic explains connections and requests of the dataplanes of one mesh. It generates the config
// of a dataplane on first use. It is not safe for concurrent use.
type Traffic struct {
	mesh    *generate.Mesh
	memo    *generate.Memo
	proxies map[string]*flowProxy
	inbound map[netip.AddrPort]inboundOf
	// egresses caches the zone's egresses by address; nil for an address without one.
	egresses map[netip.AddrPort]*flowProxy
	shadow   *Traffic

	// Build returns the build information that the Envoy of a dataplane reports, or nil if unknown.
	// It may be nil.
	Build func(dataplane string) *finding.Build
	// OtherMesh reports whether a dataplane of another mesh has the address. It may be nil.
	OtherMesh func(netip.AddrPort) bool
	// Names returns the names of the resolver on the node of a dataplane, or nil if they have not
	// been computed. If Names or its result is nil, a resolver with the default config and only
	// this mesh is assumed.
	Names       func(dataplane string) *names.Table
	classifiers map[string]*names.Classifier // by dataplane
	live        func(dataplane string) *Live // nil: use the computed config
}

// flowProxy is a dataplane with its config.
type flowProxy struct {
	dataplane *resource.Resource
	spec      *resource.Dataplane
	config    *match.Config
	snapshot  *envoy.Snapshot
	outbounds []mesh.Outbound
	rules     *policy.Rules // nil: the mesh has no policies
	clusters  map[string]*clusterFacts
	live      *Live                               // nil: snapshot is the computed config
	computed  *match.Config                       // the computed config if Envoy does not have all of it; else nil
	owners    map[draft.ResourceID][]resource.Key // computed on first use
}

// inboundOf identifies the inbound of a dataplane.
type inboundOf struct {
	dataplane string
	listener  netip.AddrPort // address of the inbound's listener
}

// NewTraffic returns a Traffic for the mesh.
func NewTraffic(m *generate.Mesh) *Traffic {
	return &Traffic{mesh: m, memo: generate.NewMemo(), proxies: map[string]*flowProxy{},
		classifiers: map[string]*names.Classifier{}}
}

// Connection explains a connection. It returns a [QuestionError], or a [generate.NotFoundError] if
// the mesh has no such dataplane.
func (t *Traffic) Connection(q *ConnectionQuestion) (*Flow, error) {
	return t.ask(&q.Target, func(d *dialled) (*inquiry, error) {
		in := &inquiry{first: match.PlainBytes}
		if q.Silent {
			if q.TLS {
				return nil, &QuestionError{"silent", "cannot be true with tls, because a TLS client speaks first"}
			}
			in.first = match.ServerFirst
		}
		if !q.TLS {
			if q.SNI != nil || len(q.ALPN) > 0 {
				return nil, &QuestionError{"tls",
					"must be true for sni and alpn, which are parts of a TLS handshake"}
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

// Request explains a request. It returns the same errors as [Traffic.Connection].
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
				fmt.Sprintf("%q is not a method: use letters, digits, and -_.!#$%%&'*+^`|~", clip.Text(q.Method, maxShown))}
		}
		for i, h := range q.Headers {
			switch {
			case h.Name == "" || strings.HasPrefix(h.Name, ":") || strings.ContainsAny(h.Name+h.Value, "\r\n\x00"):
				return nil, &QuestionError{fmt.Sprintf("headers[%d]", i),
					fmt.Sprintf("%q: %q is not a valid header; give its name and value",
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
			return nil, &QuestionError{"http10", "cannot be true with http2"}
		case q.HTTP2:
			in.first = match.H2C
		case q.HTTP10:
			in.first = match.HTTP10
		}
		return in, nil
	})
}

// authority returns the Host of a request to HOST:PORT without the default port of http (RFC 9110,
// section 7.2).
func authority(to string) string {
	host, _ := strings.CutSuffix(to, ":80")
	return host
}

// inquiry describes what the client sends.
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
	d, err := t.dial(p, target)
	if err != nil {
		return nil, err
	}
	in, err := read(&d)
	if err != nil {
		return nil, err
	}
	missing, why := p.unreachable(t, &d)
	flow := t.noDestination(p, &d)
	if flow == nil {
		flow = t.follow(p, &d, in)
		t.explainVirtualAddress(p, flow, &d)
		if missing != nil {
			t.explainUnreachable(p, flow, missing, why)
		} else if flow.Verdict != VerdictAllowed {
			t.explainDeniedOutside(p, flow)
		}
		t.explainUnready(flow)
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

// withShadow adds the explanation with shadow policies active.
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

// firstDifference returns the first step at which two flows differ; "" if they are equal.
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
		// the same choice also differs if the note says that its endpoints differ
		if s.At != o.At || s.Chose != o.Chose || s.At == "cluster" && s.Note != o.Note {
			return s.At
		}
	}
	for _, s := range slices.Concat(a.Steps[n:], b.Steps[n:]) {
		return s.At // one flow has additional steps
	}
	return ""
}

// proxy returns the dataplane and generates its config on first use.
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
		p.useLive(t.live(name), facts)
	}
	p.outbounds, _ = t.mesh.View.Outbounds(r)
	if t.mesh.Policies != nil {
		p.rules = t.mesh.Policies.Rules(r)
	}
	t.proxies[name] = p
	return p, nil
}

// follow explains the whole path: through the proxy of the client and the proxies of the servers
// behind it.
func (t *Traffic) follow(p *flowProxy, d *dialled, in *inquiry) *Flow {
	conn := p.connect(d.dst, t.mesh.View.IsVirtual(d.dst.Addr()))
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
	if trace.Outcome == match.NoListener && !p.redirected() {
		if d.dst.Addr().IsLoopback() {
			p.listOutbounds(flow)
			return flow
		}
		t.explainNoProxy(p, flow, d)
		return flow
	}
	if flow.Verdict == VerdictAllowed {
		t.noteBypasses(p, flow, d)
		t.followServers(p, flow, in)
		t.noteOtherProxies(flow, d)
	}
	return flow
}

func (p *flowProxy) trace(conn *match.Conn, req *match.Request) *match.Trace {
	if req == nil {
		return p.config.Connection(conn)
	}
	return p.config.Request(conn, req)
}

// outboundAt returns the outbound whose listener accepted the connection, or nil.
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
