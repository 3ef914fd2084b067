// Package draft lets programs outside a node make and sign versions of records: the node supplies
// the date and the lineage, and checks both when it gets the version. The package is pure.
package draft

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/clock"
	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// Draft holds the date and the ancestors of the next version of a record.
type Draft struct {
	HLC     record.HLC
	Lineage []record.Ancestor // of the next version, newest first; empty for an unknown record
}

// Next returns the draft of the version after parent in an era. parent is nil if there is none.
func Next(now time.Time, era uint8, parent *record.Record) (Draft, error) {
	h, l, err := record.Following(now, era, parent)
	return Draft{h, l}, err
}

// Pack returns the lineage in binary form, for [Parse].
func (d Draft) Pack() []byte { return record.PackLineage(d.Lineage) }

// Parse returns a draft.
func Parse(h record.HLC, lineage []byte) (Draft, error) {
	l, err := record.ParseLineage(lineage)
	return Draft{h, l}, err
}

// Seal returns the version that a draft and a change result in, signed by the signer of the origin.
func (d Draft) Seal(p record.Put, of record.Origin) (*record.Record, error) {
	return p.Seal(d.HLC, d.Lineage, of)
}

// ErrStale means that a version cannot be stored, because its record was changed after the draft,
// or because too much time has passed.
var ErrStale = errors.New("the version is outdated")

// Check returns an error unless r, which another program has made, is the next version after parent
// at the time now for a node.
func Check(r *record.Record, now time.Time, parent *record.Record, of record.Origin) error {
	d, err := Next(now, of.Era, parent)
	earliest, latest := record.Wall(now.Add(-clock.MaxSkew)), record.Wall(now.Add(clock.MaxSkew))
	switch {
	case err != nil:
		return err
	case r.Cluster != of.Cluster:
		return fmt.Errorf("%s is of the cluster %q, and this node of %q", r.Key, r.Cluster, of.Cluster)
	case r.Writer != record.Writer(of.Node[:8]) || r.Origin != of.Name:
		return fmt.Errorf("%w: %s was made for the node %q", ErrStale, r.Key, r.Origin)
	case !slices.Equal(r.Lineage, d.Lineage) || parent != nil && r.HLC <= parent.HLC:
		return fmt.Errorf("%w: %s was changed in the meantime", ErrStale, r.Key)
	case r.HLC.Era() != d.HLC.Era():
		return fmt.Errorf("%w: %s is of era %d, and this node of era %d", ErrStale, r.Key, r.HLC.Era(), d.HLC.Era())
	case r.HLC.Date() < earliest || r.HLC.Date() > max(latest, d.HLC.Date()):
		return fmt.Errorf("%w: %s is dated %s, and the time of the pool is %s; at most %s between them are allowed",
			ErrStale, r.Key, r.HLC.Time().UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), clock.MaxSkew)
	}
	return nil
}
