package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/heal"
	"github.com/nearside-mesh/nearside/gossip/engine/liveness"
	"github.com/nearside-mesh/nearside/gossip/engine/record"
)

// Op changes stored data: it sets a value, or deletes it if Value is nil.
type Op struct {
	Bucket string
	Key    string // bytes, not text
	Value  []byte
	Record *Record // the decoded Value of a record, or nil: the engine then decodes Value
}

// Buckets. Values are in wire format, with a header of 9 bytes in conflicts and of 8 bytes in
// parked. Those of deaths are a time and a byte; those of meta are numbers. Only callers that store
// records themselves need the name of a bucket.
const (
	BucketRecords   = "records"
	bucketManifests = "manifests"
	bucketShards    = "shards" // manifests that earlier builds must not load
	bucketBodies    = "bodies"
	bucketConflicts = "conflicts"
	bucketLimbo     = "limbo"
	bucketParked    = "parked"
	bucketDeaths    = "deaths"
	bucketHeals     = "heals"
	bucketHeld      = "held"
	bucketMeta      = "meta"
	bucketWithheld  = "withheld"

	metaEpoch  = "epoch"
	metaAgreed = "agreed"
	metaPool   = "pool"
	metaAge    = "age"
	// metaVerified is equal to metaEpoch if the last start was by a build that verifies signatures.
	metaVerified = "verified"
)

// Buckets returns the names of all buckets.
func Buckets() []string {
	return []string{BucketRecords, bucketManifests, bucketShards, bucketBodies, bucketConflicts, bucketLimbo, bucketParked,
		bucketDeaths, bucketPins, bucketHeals, bucketHeld, bucketMeta, bucketWithheld}
}

func (e *Engine) write(bucket, key string, value []byte) {
	e.out.Write = append(e.out.Write, Op{Bucket: bucket, Key: key, Value: value})
}

func putTime(t time.Time) []byte { return putNumber(uint64(max(t.UnixMilli(), 0))) }

func getTime(b []byte) time.Time { return time.UnixMilli(int64(min(getNumber(b), 1<<52))) }

func putNumber(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func getNumber(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// recordOp returns the operation that stores a record.
func recordOp(r *Record) Op {
	slot := r.Key.Slot()
	return Op{Bucket: BucketRecords, Key: string(slot[:]), Value: r.Encoded(), Record: r}
}

// bucketOf returns the bucket that stores a manifest.
func bucketOf(m *Manifest) string {
	if m.Extended() {
		return bucketShards
	}
	return bucketManifests
}

// load restores saved state. It skips and reports unreadable values: peers have them too.
func (e *Engine) load(saved []Op) {
	var manifests []*Manifest
	bodies := map[BodyHash][]byte{}
	e.unverified = !VerifiedBefore(saved)
	for _, op := range saved {
		var err error
		switch op.Bucket {
		case BucketRecords:
			var r *Record
			if r, err = e.loadEntry(op); err == nil {
				e.setRecord(nil, r)
			}
		case bucketManifests, bucketShards:
			var m *Manifest
			if m, err = e.loadManifest(op.Value); err == nil {
				manifests = append(manifests, m)
			}
		case bucketBodies:
			bodies[HashBody(op.Value)] = op.Value
		case bucketConflicts:
			var c *Conflict
			if c, err = e.decodeConflict(op.Value); err == nil {
				e.conflicts.put(c)
			}
		case bucketLimbo:
			var r *Record
			if r, err = e.loadRecord(op.Value); err == nil {
				e.limbo[r.Key.Slot()] = r
			}
		case bucketParked:
			err = e.loadParked(op.Value)
		case bucketHeld:
			var r *Record
			if r, err = LoadRecord(op.Value); err == nil {
				e.holds.held[r.Key.Slot()] = r
				e.holds.touched[r.Key.Name] = true
			}
		case bucketHeals:
			var s heal.Statement
			if s, err = heal.Decode(op.Value); err == nil {
				e.heals.Add(s)
			}
		case bucketDeaths:
			err = e.loadDeath(op.Key, op.Value)
		case bucketPins:
			err = e.names.book.Load(op.Key, op.Value)
		case bucketWithheld:
			err = e.loadWithheld(op.Value)
		case bucketMeta:
			switch op.Key {
			case metaEpoch:
				e.own.epoch = getNumber(op.Value)
			case metaAgreed:
				e.agreed = getTime(op.Value)
			case metaPool:
				e.clock.pool = getTime(op.Value)
			case metaAge:
				e.clock.savedAge = getTime(op.Value)
			}
		}
		if err != nil {
			e.addDamaged(op, err)
		}
	}
	slices.SortStableFunc(e.conflicts.order, func(a, b *Conflict) int { return a.Seen.Compare(b.Seen) })
	e.loadManifests(manifests, bodies)
	e.unverified = false
	e.out = Actions{Notes: e.out.Notes} // loaded values are already on disk
}

// VerifiedBefore reports whether only builds that verify signatures have written the saved state
// since a start of such a build.
func VerifiedBefore(saved []Op) bool {
	var epoch, verified []byte
	for _, op := range saved {
		switch {
		case op.Bucket == bucketMeta && op.Key == metaEpoch:
			epoch = op.Value
		case op.Bucket == bucketMeta && op.Key == metaVerified:
			verified = op.Value
		}
	}
	return bytes.Equal(epoch, verified)
}

// loadEntry returns a saved record in force.
func (e *Engine) loadEntry(op Op) (*Record, error) {
	switch r := op.Record; {
	case r == nil:
		return e.loadRecord(op.Value)
	case e.unverified && len(r.Signature) > 0:
		return e.loadRecord(r.Encoded())
	default:
		return r, r.Matches(op.Value)
	}
}

// loadRecord decodes a saved record. It verifies the signature if an earlier build may have stored
// the record.
func (e *Engine) loadRecord(b []byte) (*Record, error) {
	if !e.unverified {
		return LoadRecord(b)
	}
	r, err := DecodeRecord(b)
	if err == nil {
		err = r.Verify()
	}
	return r, err
}

func (e *Engine) loadManifest(b []byte) (*Manifest, error) {
	if !e.unverified {
		return record.LoadManifest(b)
	}
	m, err := DecodeManifest(b)
	if err == nil {
		err = m.Verify()
	}
	return m, err
}

// setRecord makes r the current version of its key.
func (e *Engine) setRecord(old *entry, r *Record) {
	h := r.Head()
	if old == nil {
		old = &entry{}
		e.entries[h.Slot] = old
	} else {
		e.tree.Drop(old.head)
		e.account(old.record, -1)
	}
	old.head, old.record = h, r
	e.dropSuperseded(h)
	e.tree.Put(h)
	e.changed = e.now
	e.account(r, 1)
	e.out.Write = append(e.out.Write, recordOp(r))
	e.out.Changed = append(e.out.Changed, Change{Key: r.Key})
}

// dropRecord removes a record without a tombstone.
func (e *Engine) dropRecord(en *entry) {
	e.tree.Drop(en.head)
	e.account(en.record, -1)
	delete(e.entries, en.head.Slot)
	e.write(BucketRecords, string(en.head.Slot[:]), nil)
	e.out.Changed = append(e.out.Changed, Change{Key: en.record.Key})
}

// saveDeaths writes deaths and returns of nodes since the last call.
func (e *Engine) saveDeaths() {
	for _, d := range e.live.Unsaved() {
		if d.At.IsZero() {
			e.write(bucketDeaths, string(d.Node[:]), nil)
			continue
		}
		held := byte(0)
		if d.Held {
			held = 1
		}
		e.write(bucketDeaths, string(d.Node[:]), append(putTime(e.poolTime().Add(d.At.Sub(e.now))), held))
	}
}

// loadDeath restores a saved death.
func (e *Engine) loadDeath(key string, value []byte) error {
	if len(key) != len(NodeID{}) || len(value) != 9 {
		return errors.New("time of a death is truncated")
	}
	e.live.Load(liveness.Death{Node: NodeID([]byte(key)), At: e.now.Add(-max(e.wall.Sub(getTime(value[:8])), 0)),
		Held: value[8] != 0})
	return nil
}
