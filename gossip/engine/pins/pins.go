// Package pins binds the names of nodes to their keys: a name belongs to the key that used it
// first. Nodes of other keys that claim the name are refused until the pin ends.
package pins

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Parameters of pins.
const (
	// Max limits the pins of a book. A full book drops pins that have ended, or else the one that was
	// created last among those whose key is not alive.
	Max = 16384
	// EndsAfter is the time after the death of a key at which another key can get its name.
	EndsAfter = 24 * time.Hour

	saveEvery  = 10 * time.Minute // between saved values of Pin.Alive
	sweepEvery = time.Minute      // between searches of a full book for pins that have ended
	aliveFor   = 5 * time.Minute  // after the last sign of life of a key
	maxName    = 253
	valueSize  = len(sign.ID{}) + 8 + 8
)

// Pin is the binding of a name to a key.
type Pin struct {
	Name  string
	Key   sign.ID
	First time.Time // when this node first saw the key
	Alive time.Time // when this node last knew that the key is alive
}

// Change is a change of a saved pin. Value is nil if the pin has ended.
type Change struct {
	Name  string
	Value []byte
}

type pin struct {
	Pin
	saved time.Time // Alive on disk
	gone  bool
}

// Book holds the pins of one node. A key has at most one name. It is not safe for concurrent use.
//
// All times that callers pass are of one clock, which must not jump while the process runs.
type Book struct {
	byName  map[string]*pin
	byKey   map[sign.ID]*pin
	order   []*pin // by First; some are gone
	swept   time.Time
	changed map[string]struct{}
}

// New returns an empty book.
func New() *Book {
	return &Book{byName: map[string]*pin{}, byKey: map[sign.ID]*pin{}, changed: map[string]struct{}{}}
}

// Load adds a saved pin. Call Start after the last one.
func (b *Book) Load(name string, value []byte) error {
	if name == "" || len(name) > maxName || len(value) != valueSize {
		return fmt.Errorf("pin of name %q has %d bytes, %d are required", name, len(value), valueSize)
	}
	p := &pin{Pin: Pin{Name: name, Key: sign.ID(value)}}
	p.First, p.Alive = getTime(value[len(sign.ID{}):]), getTime(value[len(sign.ID{})+8:])
	p.saved = p.Alive
	if len(b.byName) >= Max || b.byName[name] != nil || b.byKey[p.Key] != nil {
		return errors.New("the pin is one too many")
	}
	b.add(p)
	return nil
}

// Start ends loading. The time in which this node did not run does not count as death of a key, so
// another key cannot get a name because this node was off for a day.
func (b *Book) Start(now time.Time) {
	var last time.Time
	for _, p := range b.byName {
		if p.Alive.After(last) {
			last = p.Alive
		}
	}
	for _, p := range b.byName {
		p.Alive = p.Alive.Add(now.Sub(last))
		if p.First.After(now) {
			p.First = now
		}
	}
	slices.SortFunc(b.order, func(a, b *pin) int {
		return cmp.Or(a.First.Compare(b.First), strings.Compare(a.Name, b.Name))
	})
}

// Holder returns the pin of a name.
func (b *Book) Holder(name string) (Pin, bool) { return found(b.byName[name]) }

// Of returns the pin of a key.
func (b *Book) Of(key sign.ID) (Pin, bool) { return found(b.byKey[key]) }

func found(p *pin) (Pin, bool) {
	if p == nil {
		return Pin{}, false
	}
	return p.Pin, true
}

// Usable returns the pin that prevents a key from using a name. ok is true if there is none. The
// zero key stands for a node without a key.
func (b *Book) Usable(name string, key sign.ID, now time.Time) (holder Pin, ok bool) {
	p := b.byName[name]
	if p == nil || p.Key == key || now.Sub(p.Alive) >= EndsAfter {
		return Pin{}, true
	}
	return p.Pin, false
}

// Claim pins a name to a live key, unless Usable returns another pin of the name. A key that gets
// another name loses its former one. The zero key gets no pin.
func (b *Book) Claim(name string, key sign.ID, now time.Time) (holder Pin, ok bool) {
	if holder, ok = b.Usable(name, key, now); ok {
		b.Assign(name, key, now)
	}
	return holder, ok
}

// Assign pins a name to a key, and ends another pin of the name. Callers have a proof: an
// enrollment or a statement of the former key.
func (b *Book) Assign(name string, key sign.ID, now time.Time) {
	if name == "" || len(name) > maxName || key == (sign.ID{}) {
		return
	}
	p := b.byKey[key]
	if p != nil && p.Name == name {
		b.touch(p, now)
		return
	}
	if old := b.byName[name]; old != nil {
		b.drop(old)
	}
	switch {
	case p != nil:
		delete(b.byName, p.Name)
		b.changed[p.Name] = struct{}{}
		p.Name, p.Alive = name, now
		b.byName[name] = p
	case len(b.byName) < Max || b.evict(now):
		b.add(&pin{Pin: Pin{Name: name, Key: key, First: now, Alive: now}})
	default:
		return
	}
	b.changed[name] = struct{}{}
}

func (b *Book) add(p *pin) {
	if len(b.order) >= 2*Max {
		b.order = slices.DeleteFunc(b.order, func(p *pin) bool { return p.gone })
	}
	b.byName[p.Name], b.byKey[p.Key], b.order = p, p, append(b.order, p)
}

// Touch records that a key is alive.
func (b *Book) Touch(key sign.ID, now time.Time) {
	if p := b.byKey[key]; p != nil {
		b.touch(p, now)
	}
}

func (b *Book) touch(p *pin, now time.Time) {
	if p.Alive = now; now.Sub(p.saved).Abs() >= saveEvery {
		b.changed[p.Name] = struct{}{}
	}
}

// Forget ends the pin of a key.
func (b *Book) Forget(key sign.ID) {
	if p := b.byKey[key]; p != nil {
		b.drop(p)
	}
}

func (b *Book) drop(p *pin) {
	delete(b.byName, p.Name)
	delete(b.byKey, p.Key)
	p.gone = true
	b.changed[p.Name] = struct{}{}
}

// evict drops pins of a full book, and reports whether there were any to drop.
func (b *Book) evict(now time.Time) bool {
	if now.Sub(b.swept).Abs() >= sweepEvery {
		b.swept = now
		for _, p := range b.order {
			if !p.gone && now.Sub(p.Alive) >= EndsAfter {
				b.drop(p)
			}
		}
	}
	for _, p := range slices.Backward(b.order) {
		if len(b.byName) < Max {
			break
		}
		if !p.gone && now.Sub(p.Alive) >= aliveFor {
			b.drop(p)
		}
	}
	return len(b.byName) < Max
}

// All returns all pins, sorted by name.
func (b *Book) All() []Pin {
	out := make([]Pin, 0, len(b.byName))
	for _, p := range b.byName {
		out = append(out, p.Pin)
	}
	slices.SortFunc(out, func(a, b Pin) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Changes returns the pins to save since the last call, sorted by name.
func (b *Book) Changes() (out []Change) {
	for name := range b.changed {
		c := Change{Name: name}
		if p := b.byName[name]; p != nil {
			p.saved = p.Alive
			c.Value = putTime(putTime(slices.Clone(p.Key[:]), p.First), p.Alive)
		}
		out = append(out, c)
	}
	clear(b.changed)
	slices.SortFunc(out, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func putTime(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(max(t.UnixMilli(), 0)))
}

func getTime(b []byte) time.Time {
	return time.UnixMilli(int64(min(binary.BigEndian.Uint64(b), 1<<52)))
}
