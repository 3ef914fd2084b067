package peers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// A dead agent is not a dead node: its Envoys may still run. Up to three nodes try to reach the
// dataplanes of a node that counts as dead, and publish the result in an item of kindReach that is
// named after the node. All nodes use the results of live nodes.
const (
	kindReach = "Reach"

	reachers    = 3               // nodes that try
	reachEvery  = 5 * time.Second // interval of attempts
	reachWait   = time.Second     // connection timeout
	reachAtOnce = 32              // concurrent connections
	reachMax    = 4096            // connections per attempt; further dataplanes count as unreachable
)

// reachBody is the body of an item of kindReach.
type reachBody struct {
	Epoch      uint64   `json:"epoch"`      // epoch of the node that owns the dataplanes
	Dataplanes []string `json:"dataplanes"` // MESH/NAME, sorted
}

// reach is the state of dead nodes' dataplanes, guarded by the mu of the source.
type reach struct {
	found    map[engine.NodeID]reachBody                             // results of this node
	reported map[engine.NodeID]map[engine.NodeID]reachBody           // results of all nodes: by reporter, then by subject
	now      map[engine.NodeID]map[resource.Key]bool                 // reachable dataplanes of dead nodes, merged
	dead     map[engine.NodeID]uint64                                // epochs of the nodes that were dead before
	bell     chan struct{}                                           // one slot: a node has died
	dial     func(context.Context, string, string) (net.Conn, error) // net.Dialer.DialContext
}

func (r *reach) open() {
	r.found, r.reported, r.now = map[engine.NodeID]reachBody{}, map[engine.NodeID]map[engine.NodeID]reachBody{},
		map[engine.NodeID]map[resource.Key]bool{}
	r.bell = make(chan struct{}, 1)
	r.dial = (&net.Dialer{}).DialContext
}

// takeReach reads the published results, and returns the nodes whose result has changed.
func (s *Source) takeReach(all []gossip.Owned, changed map[engine.NodeID]bool) map[engine.NodeID]bool {
	r := &s.reach
	living := map[engine.NodeID]bool{s.node.Self(): true}
	dead := map[engine.NodeID]uint64{} // epochs
	for i := range all {
		o := &all[i]
		switch {
		case o.Node == s.node.Self():
		case o.Serving == engine.Serve:
			living[o.Node] = true
		default:
			dead[o.Node] = o.Epoch
		}
		if _, known := r.reported[o.Node]; o.Node != s.node.Self() && (changed[o.Node] || !known) {
			full, _ := s.node.OwnedBy(o.Node)
			r.reported[o.Node] = reachItems(&full)
		}
	}
	maps.DeleteFunc(r.reported, func(id engine.NodeID, _ map[engine.NodeID]reachBody) bool {
		return !slices.ContainsFunc(all, func(o gossip.Owned) bool { return o.Node == id })
	})
	r.reported[s.node.Self()] = r.found
	now := map[engine.NodeID]map[resource.Key]bool{}
	for reporter, results := range r.reported {
		if !living[reporter] {
			continue
		}
		for of, body := range results {
			if epoch, ok := dead[of]; !ok || epoch != body.Epoch {
				continue
			}
			if now[of] == nil {
				now[of] = map[resource.Key]bool{}
			}
			for _, name := range body.Dataplanes {
				if k, ok := dataplaneKey(name); ok {
					now[of][k] = true
				}
			}
		}
	}
	out := map[engine.NodeID]bool{}
	for id := range dead {
		if !maps.Equal(now[id], r.now[id]) {
			out[id] = true
		}
	}
	died := false
	for id, epoch := range dead {
		before, was := r.dead[id]
		died = died || !was || before != epoch
	}
	r.now, r.dead = now, dead
	if died {
		select {
		case r.bell <- struct{}{}:
		default:
		}
	}
	return out
}

// reachItems returns the results that a node publishes. It skips invalid ones.
func reachItems(o *gossip.Owned) map[engine.NodeID]reachBody {
	out := map[engine.NodeID]reachBody{}
	for _, item := range o.Items {
		if item.Key.Kind != kindReach || item.Body == nil {
			continue
		}
		var b reachBody
		id, err := engine.ParseNodeID(item.Key.Name)
		if err == nil && json.Unmarshal(item.Body, &b) == nil {
			out[id] = b
		}
	}
	return out
}

// reachOwn returns the items with this node's results, sorted.
func (s *Source) reachOwn() (out []engine.OwnItem) {
	for _, id := range slices.SortedFunc(maps.Keys(s.reach.found), compareNodes) {
		if body, err := json.Marshal(s.reach.found[id]); err == nil && len(body) <= engine.MaxBody {
			out = append(out, engine.OwnItem{Key: engine.Key{Kind: kindReach, Name: id.String()}, Body: body})
		}
	}
	return out
}

func compareNodes(a, b engine.NodeID) int { return slices.Compare(a[:], b[:]) }

func dataplaneName(k resource.Key) string { return k.Mesh + "/" + k.Name }

func dataplaneKey(name string) (resource.Key, bool) {
	mesh, name, ok := strings.Cut(name, "/")
	return resource.Key{Kind: "Dataplane", Mesh: mesh, Name: name}, ok
}

// serving returns the usable resources of a node, with the liveness label of its dataplanes.
func (s *Source) serving(o *gossip.Owned) map[resource.Key]*resource.Resource {
	all := s.usable(o)
	if o.Serving == engine.Serve {
		return all
	}
	reached := s.reach.now[o.Node]
	if o.Serving == engine.Removed && len(reached) == 0 {
		return nil
	}
	for key, r := range all {
		mark := resource.LivenessDead
		switch {
		case key.Kind != "Dataplane":
			continue
		case reached[key]:
			mark = resource.LivenessNoAgent
		case o.Serving == engine.Removed && len(addressesOf(r)) > 0:
			delete(all, key)
			continue
		}
		if next, err := s.withLiveness(r, mark); err == nil {
			all[key] = next
		}
	}
	return all
}

// withLiveness returns a resource with a liveness label.
func (s *Source) withLiveness(r *resource.Resource, mark string) (*resource.Resource, error) {
	next := *r
	next.Labels = maps.Clone(r.Labels)
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	next.Labels[resource.LabelLiveness] = mark
	body, err := resource.Marshal(&next)
	if err != nil {
		return nil, err
	}
	return s.o.Decode(body)
}

// addressesOf returns the addresses at which other nodes reach a dataplane.
func addressesOf(r *resource.Resource) (out []netip.AddrPort) {
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return nil
	}
	for i := range dp.Networking.Inbound {
		in := &dp.Networking.Inbound[i]
		addr, err := netip.ParseAddr(cmp.Or(dp.Networking.AdvertisedAddress, in.Address, dp.Networking.Address))
		if err == nil && in.Port > 0 && in.Port < 1<<16 {
			out = append(out, netip.AddrPortFrom(addr.Unmap(), uint16(in.Port)))
		}
	}
	return out
}

// target is an address to try.
type target struct {
	key resource.Key
	at  netip.AddrPort
}

// reachLoop tries to reach the dataplanes of dead nodes, if this node is responsible.
func (s *Source) reachLoop(ctx context.Context) {
	tick := time.NewTicker(reachEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.reach.bell:
		case <-tick.C:
		}
		dead := s.assigned()
		found := map[engine.NodeID]reachBody{}
		for _, o := range dead {
			names := s.try(ctx, s.targets(&o))
			if len(names) > 0 {
				found[o.Node] = reachBody{o.Epoch, names}
			}
		}
		if ctx.Err() != nil {
			return
		}
		s.setFound(found)
	}
}

// assigned returns the dead nodes for which this node is responsible.
func (s *Source) assigned() (out []gossip.Owned) {
	var living []engine.NodeID
	for _, m := range s.node.Members() {
		if m.Self || m.State == gossip.StateAlive {
			living = append(living, m.Node)
		}
	}
	for _, o := range s.node.Owners() {
		if o.Node != s.node.Self() && o.Serving != engine.Serve && rank(s.node.Self(), o.Node, living) < reachers {
			if full, ok := s.node.OwnedBy(o.Node); ok {
				out = append(out, full)
			}
		}
	}
	return out
}

// rank returns the position of self among the nodes responsible for another one. All nodes compute
// the same order.
func rank(self, of engine.NodeID, living []engine.NodeID) (n int) {
	score := func(id engine.NodeID) uint64 {
		h := fnv.New64a()
		_, _ = h.Write(of[:])
		_, _ = h.Write(id[:])
		return h.Sum64()
	}
	mine := score(self)
	for _, id := range living {
		if x := score(id); x > mine || x == mine && compareNodes(id, self) < 0 {
			n++
		}
	}
	return n
}

// targets returns the addresses of a node's dataplanes. Loopback addresses belong to another
// machine, unless the node itself has one.
func (s *Source) targets(o *gossip.Owned) (out []target) {
	local := false
	for _, m := range s.node.Members() {
		local = local || m.Node == o.Node && m.Addr.Addr().Unmap().IsLoopback()
	}
	for key, r := range s.usable(o) {
		for _, at := range addressesOf(r) {
			if a := at.Addr(); a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() && !local {
				continue
			}
			out = append(out, target{key, at})
		}
	}
	slices.SortFunc(out, func(a, b target) int { return cmp.Or(a.key.Compare(b.key), a.at.Compare(b.at)) })
	return out[:min(len(out), reachMax)]
}

// try returns the names of the dataplanes that accept a connection, sorted.
func (s *Source) try(ctx context.Context, list []target) []string {
	var mu sync.Mutex
	reached := map[string]bool{}
	slots := make(chan struct{}, reachAtOnce)
	var wg sync.WaitGroup
	for _, t := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, reachWait)
			defer cancel()
			conn, err := s.reach.dial(ctx, "tcp", net.JoinHostPort(t.at.Addr().String(), strconv.Itoa(int(t.at.Port()))))
			if err != nil {
				return
			}
			_ = conn.Close()
			mu.Lock()
			defer mu.Unlock()
			reached[dataplaneName(t.key)] = true
		})
	}
	wg.Wait()
	return slices.Sorted(maps.Keys(reached))
}

// setFound stores and publishes the results of this node.
func (s *Source) setFound(found map[engine.NodeID]reachBody) {
	s.mu.Lock()
	same := maps.EqualFunc(found, s.reach.found, func(a, b reachBody) bool {
		return a.Epoch == b.Epoch && slices.Equal(a.Dataplanes, b.Dataplanes)
	})
	reached := slices.Collect(maps.Keys(s.reach.now))
	s.mu.Unlock()
	for _, id := range reached {
		s.node.Vouch(id)
	}
	if same {
		return
	}
	s.mu.Lock()
	s.reach.found = found
	s.mu.Unlock()
	s.publishOwn()
	s.take([]engine.Change{{Node: s.node.Self()}}, false)
}

// agentLost returns the nodes whose agent does not respond although dataplanes do, with the number
// of those.
func (s *Source) agentLost() map[engine.NodeID]int {
	out := map[engine.NodeID]int{}
	for id, keys := range s.reach.now {
		if len(keys) > 0 {
			out[id] = len(keys)
		}
	}
	return out
}

// lostText returns the text about a lost agent.
func lostText(name string, n int) string {
	return fmt.Sprintf("the agent of node %s does not respond, but ", name) +
		plural.Form(n, "1 of its dataplanes does and stays in use", "%d of its dataplanes do and stay in use")
}
