package generate

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// batch is a sealed group of outbounds. Its key covers all inputs, so a batch also serves the
// proxy's next config and other proxies with the same inputs. It is immutable.
type batch struct {
	key       batchKeys
	addresses []draft.Address // of a batch that can be moved; nil if it cannot or was moved
	sealed    draft.Batch
	refs      *refList
	notes     []mesh.Warning // without a key if about the proxy itself
	tls       bool           // something refers to the secrets

	template *template // from which it is derived, or nil
}

// template is a batch from which other batches of its shape are derived.
type template struct {
	of    *batch
	draft *draft.Template
}

// batchKey is a hash over inputs of a batch.
type batchKey [32]byte

// batchKeys identify a batch. Shape covers all inputs but the request headers of the proxy and, if
// no policy reads them, the addresses of the outbounds. From a batch of a shape, batches with other
// addresses and headers are derived without generating them.
type batchKeys struct{ whole, shape batchKey }

// Sizes of batches, in outbounds. The service of an outbound decides whether a batch ends there, so
// adding or removing an outbound leaves later batches unchanged, and proxies with the same services
// at other addresses have the same batches. The first batch is small, because it is generated each
// time with everything that is not an outbound.
const (
	firstBatch = batchSize / 4
	minBatch   = batchSize / 2
	maxBatch   = batchSize * 2
)

// cutBatches divides a list of outbounds into batches.
func cutBatches(list []mesh.Outbound) func(yield func([]mesh.Outbound) bool) {
	return func(yield func([]mesh.Outbound) bool) {
		least := firstBatch
		if len(list) <= batchSize {
			least = batchSize
		}
		for ; len(list) > 0; least = minBatch {
			n := min(least, len(list))
			for least == minBatch && n < min(maxBatch, len(list)) && hashOf(&list[n-1])%(batchSize/2) != 0 {
				n++
			}
			if !yield(list[:n:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// hashOf returns a hash of the service of an outbound.
func hashOf(o *mesh.Outbound) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(o.Service.ID.Name))
	return h.Sum32()
}

// frameKey returns a hash over all inputs of a config except the outbounds, the destinations of
// routes, the endpoints, and the secrets.
func (g *generator) frameKey(in *Input, match *policy.Match) [32]byte {
	d := newDigest()
	d.bytes(g.v.Common[:])
	d.add(g.r.Key.String())
	d.bytes(g.r.Digest[:])
	g.inputs(d, in, match)
	for _, i := range g.fixed {
		d.add(i.Dataplane.String(), i.Service, string(i.Protocol), i.At.String())
	}
	return d.sum()
}

// inputs adds the inputs that are common to batches of several proxies.
func (g *generator) inputs(d *digest, in *Input, match *policy.Match) {
	version := ""
	if b := in.Build; b != nil {
		version = fmt.Sprintf("%d.%d", b.Version.Major, b.Version.Minor)
	}
	d.add(version, string(g.flavor))
	addr, err := netip.ParseAddr(g.dp.Networking.Address)
	d.flags(err == nil && !addr.Is4(), g.bindToPort() == nil, in.Inline, match != nil)
	if match != nil {
		d.bytes(match.Fingerprint[:])
	}
}

// batchesBase returns a hash over the inputs of all batches of a proxy, without their outbounds.
func (g *generator) batchesBase(in *Input, match *policy.Match) [32]byte {
	d := newDigest()
	d.bytes(g.v.Common[:])
	d.flags(g.headers != nil)
	g.inputs(d, in, match)
	if match == nil {
		return d.sum()
	}
	reads := match.Reads()
	if in.Inline || reads >= policy.ReadsTags {
		d.tags(g.dp)
		d.pairs(g.r.Labels)
	}
	if reads >= policy.ReadsDataplane {
		d.dataplane(g.r, g.dp)
	}
	match.Destinations(func(p *resource.Resource, ref policy.BackendRef) {
		o, ok := g.v.Backend(p, mesh.BackendRef(ref))
		if d.flags(ok); ok {
			o = g.permits.restrict(o)
			d.outbound(&o)
		}
	})
	if match.LegacyDestinations() {
		// The destinations depend on the tags of each outbound.
		d.bytes(g.v.Catalog[:])
		d.bytes(g.p.reach[:])
	}
	return d.sum()
}

// outline finds the proxy's reachable outbounds, divides them into batches, and computes the keys
// of the batches.
func (g *generator) outline(in *Input, match *policy.Match) {
	if g.outlined {
		return
	}
	g.outlined = true
	if g.flavor != node.FlavorGRPC {
		g.headers = g.tagsHeader()
	}
	g.reachable, g.warnings = in.outbounds(g.r)
	base := g.batchesBase(in, match)
	g.fixedAddresses = in.Inline || match != nil && match.ByName()
	addresses := &digest{}
	for list := range cutBatches(g.reachable) {
		shape := newDigest()
		shape.bytes(base[:])
		addresses.b = addresses.b[:0]
		for i := range list {
			shape.outbound(&list[i])
			addresses.address(&list[i])
		}
		k := batchKeys{shape: shape.sum()}
		if g.fixedAddresses {
			k.shape = k.shape.with(addresses.b)
		}
		addresses.bytes(g.headers.Bytes())
		k.whole = k.shape.with(addresses.b)
		g.keys = append(g.keys, k)
	}
}

// with returns a hash of a key and more inputs.
func (k batchKey) with(b []byte) batchKey {
	d := newDigest()
	d.bytes(k[:])
	d.bytes(b)
	return d.sum()
}

// address adds the address of an outbound.
func (d *digest) address(o *mesh.Outbound) {
	d.b = append(d.b, byte(o.Address.BitLen()))
	d.b = append(d.b, o.Address.AsSlice()...)
	d.number(int(o.Port))
}

// outbound adds all inputs of the listener, the cluster, and the routes of an outbound but its
// address. This excludes endpoints that are served by EDS.
func (d *digest) outbound(o *mesh.Outbound) {
	s := o.Service
	for _, text := range [...]string{s.ID.Kind, s.ID.Name, string(s.Protocol), s.FullName} {
		d.text(text)
	}
	d.flags(s.External, s.Egress, s.Denied, s.Index < 0, s.TLSNotReady, o.Tags == nil)
	d.add(s.Identities...)
	d.pairs(o.Tags)
	d.pairs(o.Subset)
	if s.External {
		for i := range s.Endpoints.List {
			e := &s.Endpoints.List[i]
			d.add(e.Resource.Key.String(), e.Address, e.Zone)
			d.bytes(e.Resource.Digest[:])
			d.number(e.Index)
			d.number(int(e.Port))
			d.number(int(e.Weight))
			d.pairs(e.Tags)
		}
	}
	d.add("")
}

func (d *digest) pairs(m map[string]string) {
	v, ok := m[resource.TagService]
	alone := ok && len(m) == 1 // as in most maps
	if d.flags(alone); alone {
		d.text(v)
		return
	}
	d.number(len(m))
	keys := make([]string, 0, 8) // stays on the stack: this runs for each outbound of each proxy
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		d.add(k, m[k])
	}
}

// tags adds all tags of the inbounds and the gateway of a dataplane.
func (d *digest) tags(dp *resource.Dataplane) {
	for i := range dp.Networking.Inbound {
		d.pairs(dp.Networking.Inbound[i].Tags)
		d.add(string(dp.Networking.Inbound[i].State))
	}
	if gateway := dp.Networking.Gateway; gateway != nil {
		d.pairs(gateway.Tags)
	}
}

// dataplane adds everything of a dataplane but its outbounds.
func (d *digest) dataplane(r *resource.Resource, dp *resource.Dataplane) {
	d.add(r.Key.String())
	d.pairs(r.Labels)
	rest := *dp
	rest.Networking.Outbound = nil
	b, err := json.Marshal(&rest)
	if err != nil { // impossible for a decoded resource
		b = r.Digest[:]
	}
	d.bytes(b)
}

// batchMaker generates batches or reuses existing ones.
type batchMaker struct {
	g *generator

	now               *batch // the batch in progress, or nil
	clusters, claimed map[string]bool
	localities        map[string]*policy.Localities
	refs              []endpointRef
	tls               bool
	mark              draft.Mark
}

// reuse adds an existing batch with the same inputs, or one that is derived from a batch of the
// same shape. It reports whether there is one.
func (m *batchMaker) reuse(key batchKeys, list []mesh.Outbound) bool {
	g := m.g
	p := g.memo.batch(key.whole)
	if p != nil {
		g.sealer.AddBatch(&p.sealed)
	} else if p = m.derive(key, list); p == nil {
		return false
	}
	for _, w := range p.notes {
		if w.Resource == (resource.Key{}) {
			w.Resource = g.r.Key
		}
		g.note(w)
	}
	if p.tls {
		g.tls.used = true
	}
	m.add(p)
	return true
}

// derive adds a batch that is derived from another one of its shape. It returns nil if there is
// none.
func (m *batchMaker) derive(key batchKeys, list []mesh.Outbound) *batch {
	t := m.g.memo.template(key.shape)
	if t == nil {
		return nil
	}
	next := *t.of
	next.key, next.template, next.addresses = key, t, nil
	var addresses []draft.Address
	if t.of.addresses != nil {
		addresses = addressesOf(list)
	}
	next.sealed = *m.g.sealer.AddMoved(t.draft, addresses, m.g.headers)
	return &next
}

// addressesOf returns the addresses of outbounds.
func addressesOf(list []mesh.Outbound) []draft.Address {
	out := make([]draft.Address, len(list))
	for i := range list {
		out[i] = draft.Address{IP: list[i].Address, Port: list[i].Port}
	}
	return out
}

// add adds a batch to the proxy and caches it for others with the same inputs.
func (m *batchMaker) add(p *batch) {
	m.g.p.batches = append(m.g.p.batches, p)
	m.g.lists = append(m.g.lists, p.refs)
	m.g.memo.addBatches(p)
}

// begin starts a batch. It does not see other batches: duplicates between batches are removed when
// the config is sealed.
func (m *batchMaker) begin(key batchKeys, list []mesh.Outbound) {
	g, outbounds := m.g, len(list)
	m.now = &batch{key: key}
	if !g.fixedAddresses {
		m.now.addresses = g.memo.addressesOf(list)
	}
	m.clusters, m.claimed, m.localities, m.refs = g.clusters, g.claimed, g.localities, g.refs
	g.clusters, g.claimed, g.localities, g.refs =
		make(map[string]bool, outbounds), nil, nil, make([]endpointRef, 0, outbounds)
	m.mark = g.sealer.Mark()
	if g.tls != nil {
		m.tls, g.tls.used = g.tls.used, false
	}
}

// end finishes the batch, and caches it unless something in it is invalid.
func (m *batchMaker) end() {
	g, p := m.g, m.now
	m.now = nil
	if g.tls != nil {
		p.tls = g.tls.used
		g.tls.used = g.tls.used || m.tls
	}
	p.refs = g.memo.refList(g.located())
	g.clusters, g.claimed, g.localities, g.refs = m.clusters, m.claimed, m.localities, m.refs
	var ok bool
	if p.sealed, ok = g.sealer.Since(m.mark); ok {
		m.add(p)
	} else {
		g.lists = append(g.lists, p.refs)
	}
}

// note records a warning for the batch in progress.
func (m *batchMaker) note(w mesh.Warning) {
	if m == nil || m.now == nil || len(m.now.notes) >= maxNotes {
		return
	}
	if w.Resource == m.g.r.Key {
		w.Resource = resource.Key{}
	}
	if !slices.Contains(m.now.notes, w) {
		m.now.notes = append(m.now.notes, w)
	}
}
