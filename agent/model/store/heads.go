package store

import (
	"cmp"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Head is a revision of a resource without its content.
type Head struct {
	Key resource.Key
	Revision
}

// Heads returns the stored revisions of all wanted resources without their content, the newest
// first. It reads the whole history, but decodes no resource. Like [Store.History], it omits
// damaged revisions.
func (s *Store) Heads(wanted func(resource.Key) bool) ([]Head, error) {
	s.mu.Lock()
	d, top, unseen := s.disk, s.revision, s.unseen
	recent := map[resource.Key][]entry{}
	burned := map[resource.Key]map[uint64]bool{}
	for k, p := range s.backlog {
		if !wanted(k) {
			continue
		}
		recent[k] = slices.Clone(p.entries)
		burned[k] = map[uint64]bool{}
		for _, r := range p.burned {
			burned[k][r] = true
		}
	}
	s.mu.Unlock()

	var out []Head
	if d != nil {
		err := d.heads(wanted, func(k resource.Key, r Revision) {
			n := r.Revision
			pending := slices.ContainsFunc(recent[k], func(e entry) bool { return e.Revision.Revision == n })
			if !pending && !burned[k][n] && n <= top && (n <= unseen[0] || n > unseen[1]) {
				out = append(out, Head{k, r})
			}
		})
		if err != nil {
			return nil, fmt.Errorf("the history cannot be read: %w", err)
		}
	}
	for k, list := range recent {
		for _, e := range list {
			r := e.Revision
			r.Resource = nil
			out = append(out, Head{k, r})
		}
	}
	slices.SortFunc(out, func(a, b Head) int { return cmp.Compare(b.Revision.Revision, a.Revision.Revision) })
	return out, nil
}

// heads calls each with the intact revisions of wanted resources on disk, without their content.
func (d *disk) heads(wanted func(resource.Key) bool, each func(resource.Key, Revision)) error {
	return guard(func() error {
		return d.db.View(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte(bucketHistory)).ForEach(func(key, value []byte) error {
				k, _, err := parseHistoryKey(key)
				if err != nil || !wanted(k) {
					return nil // a damaged key is in the quarantine after the next start
				}
				if h, _, err := unwrap(key, value); err == nil {
					each(k, Revision{Revision: h.Revision, Time: h.Modified, Source: h.Source, Author: h.Author,
						Signer: signerOf(h.Signer), Deleted: h.Deleted})
				}
				return nil
			})
		})
	})
}
