package peers

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/gossip"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/heal"
)

// healAuthor is the author of versions that a heal restores.
const healAuthor = "nearside pool heal"

// takeHeals applies the records of heals in force. The caller holds mu.
func (s *Source) takeHeals() {
	for _, r := range s.node.Records() {
		if r.Key.Kind != trust.KindHeal {
			continue
		}
		st, err := trust.DecodeHeal(r.Key.Name, r.Body)
		if err != nil {
			s.o.Log.Warn("a heal of the pool is invalid and ignored", "name", r.Key.Name, "error", err)
			continue
		}
		s.applyHeal(st)
	}
}

// applyHeal puts a statement into force, and records the keys that it voids. The caller holds mu.
func (s *Source) applyHeal(st heal.Statement) {
	if slices.ContainsFunc(s.node.Heals(), func(x heal.Statement) bool { return bytes.Equal(x.Encode(), st.Encode()) }) {
		return
	}
	records, owners := s.node.Voided(st)
	keys := []resource.Key{} // an entry means that the heal was applied
	for _, r := range records {
		if r.Key.Kind != trust.KindHeal {
			keys = append(keys, resource.Key(r.Key))
		}
	}
	s.voided[int(st.Era)] = keys
	s.o.Log.Warn("the pool was healed; void versions are dropped, and nearside history shows earlier ones",
		"era", st.Era, "at", st.At.UTC(), "records", len(records), "nodes", len(owners))
	s.node.Heal(st)
}

// errEra means that a heal was not found.
var errEra = errors.New("this node has no heal of this era that restored nothing; run nearside pool heal again")

// Heal begins an era of the pool, or describes the effect. With an era, it restores what the heal
// of that era voided, if this node has applied the heal since it started.
func (s *Source) Heal(q api.PoolHeal) (*api.PoolHealed, error) {
	st, err := s.statement(q)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Era > 0 {
		s.takeHeals() // the record of the heal may be new
		keys, ok := s.voided[q.Era]
		if !ok {
			return nil, errEra
		}
		delete(s.voided, q.Era)
		out := &api.PoolHealed{Era: q.Era, Items: s.restore(s.heals()[q.Era], keys, false)}
		return out, nil
	}
	body, err := trust.HealOf(st).Encode()
	if err != nil {
		return nil, err
	}
	out := &api.PoolHealed{Era: int(st.Era), DryRun: q.DryRun, Statement: string(body), Older: s.withoutEras()}
	records, owners := s.node.Voided(st)
	for _, m := range owners {
		out.Owners = append(out.Owners, cmp.Or(m.Name, m.Node.String()))
	}
	var keys []resource.Key
	for _, r := range records {
		if r.Key.Kind != trust.KindHeal {
			keys = append(keys, resource.Key(r.Key))
		}
	}
	if q.DryRun {
		out.Items = s.restore(st, keys, true)
		return out, nil
	}
	put := engine.Put{Key: engine.Key{Kind: trust.KindHeal, Name: trust.HealName(int(st.Era))}, Body: body,
		MediaType: "application/json", Author: healAuthor}
	sealed, committed, err := s.node.Seal([]engine.Put{put})
	if err != nil {
		return nil, err
	}
	s.apply(store.SourceGossip, []store.Op{s.o.Store.Merge(sealed[0])})
	if err := s.o.Store.Flush(); err != nil {
		return nil, err
	}
	committed()
	s.applyHeal(st)
	delete(s.voided, int(st.Era))
	out.Items = s.restore(st, keys, false)
	return out, nil
}

func (s *Source) heals() map[int]heal.Statement {
	out := map[int]heal.Statement{}
	for _, st := range s.node.Heals() {
		out[int(st.Era)] = st
	}
	return out
}

// withoutEras returns the live members whose version does not know eras.
func (s *Source) withoutEras() (out []string) {
	for _, m := range s.node.Members() {
		if !m.Self && m.State == gossip.StateAlive && m.Features&engine.FeatureEras == 0 {
			out = append(out, cmp.Or(m.Name, m.Node.String()))
		}
	}
	return out
}

// statement returns the statement of a heal now. It evicts what earlier heals evicted too.
func (s *Source) statement(q api.PoolHeal) (heal.Statement, error) {
	st := heal.Statement{Era: 1, At: s.o.Now().Truncate(time.Millisecond)}
	for _, x := range s.node.Heals() {
		st.Era = x.Era + 1
		st.Evicted = append(st.Evicted, x.Evicted...)
	}
	if st.Era > heal.MaxEra {
		return st, fmt.Errorf("all %d eras of the pool are used", heal.MaxEra)
	}
	for _, name := range q.Evict {
		id, err := s.evicted(name)
		if err != nil {
			return st, err
		}
		st.Evicted = append(st.Evicted, id)
	}
	slices.SortFunc(st.Evicted, func(a, b heal.ID) int { return bytes.Compare(a[:], b[:]) })
	st.Evicted = slices.Compact(st.Evicted)
	if q.PurgeUnknown {
		st.Kinds = append(slices.Clone(s.o.Kinds), trust.KindFile, trust.KindEnrollment, trust.KindHeal)
		slices.Sort(st.Kinds)
	}
	return st, st.Validate()
}

// evicted returns the ID of a node with a name, or of a node or key with an ID.
func (s *Source) evicted(name string) (id heal.ID, err error) {
	found := map[engine.NodeID]bool{}
	if n, err := engine.ParseNodeID(name); err == nil {
		found[n] = true
	}
	for _, m := range s.node.Members() {
		if m.Name == name {
			found[m.Node] = true
		}
	}
	for _, o := range s.node.Owners() {
		if o.Name == name {
			found[o.Node] = true
		}
	}
	switch {
	case found[s.node.Self()]:
		return id, fmt.Errorf("%s is this node; run the command on a node that stays in the pool", name)
	case len(found) == 0:
		return id, fmt.Errorf("no node has the name %s; give a name, or the ID of a node or key (32 hexadecimal digits)",
			name)
	case len(found) > 1:
		return id, fmt.Errorf("%s have the name %s; use an ID from nearside members -o json",
			plural.Count(len(found), "node"), name)
	}
	for n := range maps.Keys(found) {
		id = heal.ID(n)
	}
	return id, nil
}

// restore writes the last valid content of voided resources from the history of this node, or only
// describes it. The caller holds mu.
func (s *Source) restore(st heal.Statement, keys []resource.Key, dryRun bool) []api.PoolVoid {
	out := make([]api.PoolVoid, 0, len(keys))
	evicted := map[string]bool{}
	writers := s.writers()
	for _, id := range st.Evicted {
		if name := writers[[8]byte(id[:8])]; name != "" {
			evicted[name] = true
		}
	}
	for _, key := range keys {
		v := api.PoolVoid{Ref: api.RefOf(key), Result: api.VoidDropped}
		var last *store.Revision
		for _, r := range s.o.Store.History(key) {
			if !r.Time.After(st.At.Add(heal.Grace)) && r.Source.Operators() && !evicted[r.Source.Detail] {
				last = &r
			}
		}
		switch {
		case len(st.Kinds) > 0 && !slices.Contains(st.Kinds, key.Kind):
			v.Reason = "its kind is unknown"
		case last == nil:
			v.Reason = "the history of this node has no valid version"
		case last.Deleted:
			v.Reason = "the last valid version is a deletion"
		default:
			v.Result, v.Revision = api.VoidRestored, last.Revision
			if dryRun {
				break
			}
			if err := s.restoreOne(last); err != nil {
				v.Result, v.Reason = api.VoidFailed, err.Error()
			}
		}
		out = append(out, v)
	}
	return out
}

func (s *Source) restoreOne(r *store.Revision) error {
	_, err := s.o.Store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Author: healAuthor, Durable: true,
		Ops: []store.Op{{Put: r.Resource}}})
	return err
}
