// Package heal decides which versions are void because an operator has healed the pool. A heal
// begins an era, which outranks every date of earlier eras.
package heal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

// MaxEra is the last era.
const MaxEra = 63

// Kind is the kind of the records with statements. A heal voids them only for their writer or
// signer.
const Kind = "PoolHeal"

// Limits of a statement.
const (
	maxEvicted = 1024
	maxKinds   = 1024
	maxKind    = 253
	// Grace is the time after a heal in which versions of earlier eras stay valid.
	Grace = 10 * time.Second
)

// ID identifies a node or a key.
type ID = [16]byte

// Statement begins an era. In no era may an evicted node or key have versions. Versions of earlier
// eras that are dated more than Grace after At are void.
type Statement struct {
	Era     uint8 // 1 to MaxEra
	At      time.Time
	Evicted []ID     // nodes and keys
	Kinds   []string // the kinds that versions of earlier eras may have; empty: all
}

const (
	fieldEra = iota + 1
	fieldAt
	fieldEvicted
	fieldKind
)

// Encode returns the statement in wire format.
func (s Statement) Encode() []byte {
	b := wire.AppendVarint(nil, fieldEra, uint64(s.Era))
	b = wire.AppendVarint(b, fieldAt, uint64(max(s.At.UnixMilli(), 0)))
	for _, id := range s.Evicted {
		b = wire.AppendBytes(b, fieldEvicted, id[:])
	}
	for _, k := range s.Kinds {
		b = wire.AppendText(b, fieldKind, k)
	}
	return b
}

// Decode is the reverse of Encode.
func Decode(b []byte) (s Statement, err error) {
	err = wire.Walk("heal", b, func(n protowire.Number) bool {
		return n == fieldEvicted || n == fieldKind
	}, func(f wire.Field) (err error) {
		switch f.Num {
		case fieldEra:
			var era int
			err = f.Within(&era, 1, MaxEra)
			s.Era = uint8(era)
		case fieldAt:
			var at uint64
			at, err = f.Number()
			s.At = time.UnixMilli(int64(min(at, 1<<42-1)))
		case fieldEvicted:
			var id ID
			err = f.Hash(&id)
			s.Evicted = append(s.Evicted, id)
		case fieldKind:
			var kind string
			err = f.Text(&kind, maxKind)
			s.Kinds = append(s.Kinds, kind)
		}
		return err
	})
	if err == nil {
		err = s.Validate()
	}
	return s, err
}

// Validate reports a field that is missing or out of range.
func (s Statement) Validate() error {
	switch {
	case s.Era < 1 || s.Era > MaxEra:
		return fmt.Errorf("heal: the era is %d, 1 to %d are allowed", s.Era, MaxEra)
	case s.At.UnixMilli() <= 0:
		return errors.New("heal: the date is missing")
	case len(s.Evicted) > maxEvicted:
		return fmt.Errorf("heal: %d nodes and keys are evicted, at most %d are allowed", len(s.Evicted), maxEvicted)
	case len(s.Kinds) > maxKinds:
		return fmt.Errorf("heal: %d kinds are listed, at most %d are allowed", len(s.Kinds), maxKinds)
	}
	return nil
}

// Version holds the properties of a version that decide whether it is void.
type Version struct {
	Era    uint8
	Date   time.Time
	Kind   string
	Writer [8]byte // first bytes of the ID of a node
	Signer ID      // zero: not signed
}

// List holds the statements that are in force, at most one for each era. The zero value is empty.
type List struct {
	all     []Statement // by era
	evicted []ID        // sorted
}

// Add adds a statement, or replaces that of its era. It reports whether the list has changed.
func (l *List) Add(s Statement) bool {
	i, found := slices.BinarySearchFunc(l.all, s.Era, func(x Statement, era uint8) int { return cmp.Compare(x.Era, era) })
	if found {
		if bytes.Equal(l.all[i].Encode(), s.Encode()) {
			return false
		}
		l.all[i] = s
	} else {
		l.all = slices.Insert(l.all, i, s)
	}
	l.evicted = nil
	for _, x := range l.all {
		l.evicted = append(l.evicted, x.Evicted...)
	}
	slices.SortFunc(l.evicted, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	l.evicted = slices.Compact(l.evicted)
	return true
}

// Era returns the current era.
func (l *List) Era() uint8 {
	if len(l.all) == 0 {
		return 0
	}
	return l.all[len(l.all)-1].Era
}

// All returns the statements, by era. Callers must not modify them.
func (l *List) All() []Statement { return l.all }

// Evicted returns the evicted nodes and keys, sorted. Callers must not modify them.
func (l *List) Evicted() []ID { return l.evicted }

// Void returns why a version is void, or "".
func (l *List) Void(v Version) string {
	for _, s := range l.all {
		switch {
		case v.Era >= s.Era || v.Kind == Kind:
		case v.Date.After(s.At.Add(Grace)):
			return "dated after the heal of the pool"
		case len(s.Kinds) > 0 && !slices.Contains(s.Kinds, v.Kind):
			return "its kind was purged by a heal of the pool"
		}
	}
	prefix := func(id ID, w [8]byte) int { return bytes.Compare(id[:8], w[:]) }
	if _, found := slices.BinarySearchFunc(l.evicted, v.Writer, prefix); found {
		return "its writer was evicted"
	}
	if v.Signer != (ID{}) && l.Evicts(v.Signer) {
		return "its signer was evicted"
	}
	return ""
}

// Evicts reports whether a node or key was evicted.
func (l *List) Evicts(id ID) bool {
	_, found := slices.BinarySearchFunc(l.evicted, id, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	return found
}

// Key returns the name under which a statement is saved.
func (s Statement) Key() string { return string(binary.BigEndian.AppendUint16(nil, uint16(s.Era))) }
