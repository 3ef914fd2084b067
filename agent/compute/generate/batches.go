package generate

import (
	"cmp"
	"encoding/binary"
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
	key    batchKey
	sealed draft.Batch
	refs   *refList
	notes  []mesh.Warning // without a key if about the proxy itself
	tls    bool           // something refers to the secrets
}

// batchKey is a hash over all inputs of a batch.
type batchKey [32]byte

// Sizes of batches, in outbounds. The address of an outbound decides whether a batch ends there, so
// adding or removing an outbound leaves later batches unchanged. The first batch is small, because
// it is generated each time with everything that is not an outbound.
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
			for least == minBatch && n < min(maxBatch, len(list)) && placeOf(&list[n-1])%(batchSize/2) != 0 {
				n++
			}
			if !yield(list[:n:n]) {
				return
			}
			list = list[n:]
		}
	}
}

func placeOf(o *mesh.Outbound) uint32 {
	h := fnv.New32a()
	b, _ := o.Address.AppendBinary(make([]byte, 0, 24)) // never fails for an address
	_, _ = h.Write(binary.BigEndian.AppendUint32(b, o.Port))
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
	for list := range cutBatches(g.reachable) {
		d := newDigest()
		d.bytes(base[:])
		for i := range list {
			d.outbound(&list[i])
		}
		g.keys = append(g.keys, d.sum())
	}
}

// outbound adds all inputs of the listener, the cluster, and the routes of an outbound. This
// excludes endpoints that are served by EDS.
func (d *digest) outbound(o *mesh.Outbound) {
	s := o.Service
	d.b = append(d.b, byte(o.Address.BitLen()))
	d.b = append(d.b, o.Address.AsSlice()...)
	d.number(int(o.Port))
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

// reuse adds an existing batch with the same inputs, and reports whether there is one.
func (m *batchMaker) reuse(key batchKey) bool {
	p := cmp.Or(m.g.memo.batch(key.with(m.g.headers)), m.g.memo.batch(key))
	if p == nil {
		return false
	}
	g := m.g
	if added := g.sealer.AddBatch(&p.sealed, g.headers); added != &p.sealed {
		next := *p
		next.key, next.sealed = key.with(g.headers), *added
		p = &next
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

// with returns the key of a batch whose routes add the given headers.
func (k batchKey) with(h *draft.Headers) batchKey {
	d := newDigest()
	d.bytes(k[:])
	d.bytes(h.Bytes())
	return d.sum()
}

// add adds a batch to the proxy and caches it for others with the same inputs.
func (m *batchMaker) add(p *batch) {
	m.g.p.batches = append(m.g.p.batches, p)
	m.g.lists = append(m.g.lists, p.refs)
	m.g.memo.addBatches(p)
}

// begin starts a batch. It does not see other batches: duplicates between batches are removed when
// the config is sealed.
func (m *batchMaker) begin(key batchKey, outbounds int) {
	g := m.g
	m.now = &batch{key: key}
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
