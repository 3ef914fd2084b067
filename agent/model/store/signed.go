package store

import (
	"cmp"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/draft"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Kinds of records of the pool that are no resources: the store keeps their versions only.
const (
	KindTrustFile      = "TrustFile"
	KindNodeEnrollment = "NodeEnrollment"
	KindPoolHeal       = "PoolHeal"
)

// Reserved reports whether records of a kind are no resources.
func Reserved(kind string) bool {
	return kind == KindTrustFile || kind == KindNodeEnrollment || kind == KindPoolHeal
}

// Draft is what an operator needs to make and sign the next version of a record.
type Draft struct {
	draft.Draft
	Current *engine.Record // may be a tombstone; nil: unknown
}

// signer returns the key that vouches for the content of an op.
func (s *Store) signer(op Op, src Source) sign.ID {
	switch {
	case op.Version != nil:
		return op.Version.Signer()
	case op.Signer == (sign.ID{}) && src.Kind == SourceAPI:
		return s.pool.self()
	}
	return op.Signer
}

// Drafts returns the drafts of keys, and the node for which their versions are valid.
func (s *Store) Drafts(keys []resource.Key) ([]Draft, engine.Origin, error) {
	s.mu.Lock()
	pool, of := s.pool.sealer, s.origin()
	out := make([]Draft, len(keys))
	list := make([]engine.Key, len(keys))
	var err error
	for i, k := range keys {
		v := s.pool.versions[k]
		d, e := draft.Next(s.now(), of.Era, v)
		out[i], list[i], err = Draft{d, v}, engine.Key(k), cmp.Or(err, e)
	}
	s.mu.Unlock()
	if pool != nil {
		var next []draft.Draft
		next, err = pool.Drafts(list)
		for i, d := range next {
			out[i].Draft = d
		}
	}
	return out, of, err
}
