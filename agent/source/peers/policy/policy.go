// Package policy holds the trust of a node, and saves its trust file.
//
// The first trust file of the pool is pinned: this package saves it in the state directory, and a
// later file must follow it. An operator can set the first one in the config. The decisions
// themselves are those of package trust.
package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/trust"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Options configures a [Policy].
type Options struct {
	// Dir is the directory of the state of this node. Empty: nothing is saved.
	Dir     string
	File    string // trust.file of the config; "": none
	Mode    string // trust.mode
	Admit   string // gossip.admit
	Cluster string
	Self    engine.NodeID
	// Features returns the dangerous features of a resource; see [trust.Options].
	Features func(key resource.Key, body []byte) access.Features
	Now      func() time.Time
}

// How a node got its first trust file.
const (
	FromPool = "pool" // the first one that this node received
	FromFile = "file" // trust.file
	FromAPI  = "api"  // an operator gave it to the API of this node
)

// pinFile is the name of the file with the pinned trust file, below Dir.
const pinFile = "trust.pin"

// pin is the content of the pin file.
type pin struct {
	From   string    `json:"from"`             // how the node got the first trust file
	Since  time.Time `json:"since"`            // when it got that
	Anchor string    `json:"anchor,omitempty"` // SHA-256 of trust.file at that time
	File   string    `json:"file"`             // the trust file in force
	Sum    string    `json:"sum"`              // SHA-256 of File
}

// Policy decides what may be in force on a node. It is safe for concurrent use.
type Policy struct {
	o     Options
	state atomic.Pointer[trust.State]

	mu          sync.Mutex
	pinned      pin
	problems    map[string]string // by topic
	enrollments []*engine.Record
}

// Open loads the trust of a node. records are those in the state of the pool. Faults of files do
// not fail it; [Policy.Problems] has them.
func Open(o Options, records []*engine.Record) *Policy {
	p := &Policy{o: o, problems: map[string]string{}}
	state := trust.New(p.options())
	pinned, err := p.readPin()
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err == nil:
		var next *trust.State
		if next, err = state.Adopt([]byte(pinned.File)); err == nil {
			state, p.pinned = next, pinned
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		state = p.recover(state, records, err)
	}
	p.state.Store(state)
	p.readAnchor()
	p.Take(records)
	return p
}

// recover returns the state of a node whose saved trust file cannot be read: that of the record in
// the state of the pool, or one that permits nothing new.
func (p *Policy) recover(state *trust.State, records []*engine.Record, err error) *trust.State {
	path := filepath.Join(p.o.Dir, pinFile)
	for _, r := range records {
		if r.Key.Kind != trust.KindFile || r.Deleted {
			continue
		}
		if next, failed := state.Adopt(r.Body); failed == nil {
			p.pinned = pin{From: FromPool, Since: p.o.Now().UTC()}
			p.problems["pin"] = fmt.Sprintf("%s cannot be read (%v), so the trust file in the state of the pool is in force; "+
				"compare its version with other nodes, and save it again with: nearside trust update", path, err)
			return next
		}
	}
	p.problems["pin"] = fmt.Sprintf("%s cannot be read (%v), so this node accepts nothing from other nodes; "+
		"set trust.file to the trust file of the pool, or restore %[1]s from a backup, and restart the agent", path, err)
	return state.Damaged("the saved trust file of this node cannot be read; see nearside check")
}

func (p *Policy) options() trust.Options {
	return trust.Options{Cluster: p.o.Cluster, Mode: p.o.Mode, Admit: p.o.Admit, Self: p.o.Self,
		Anchored: p.o.Mode == trust.ModeEnforce, Features: p.o.Features}
}

// State returns the present state.
func (p *Policy) State() *trust.State { return p.state.Load() }

// Record implements [engine.Policy].
func (p *Policy) Record(r *engine.Record) string { return p.state.Load().Record(r) }

// Manifest implements [engine.Policy].
func (p *Policy) Manifest(m *engine.Manifest) string { return p.state.Load().Manifest(m) }

// Member returns "" if a node may be a member of the pool under a name, or the reason.
func (p *Policy) Member(node engine.NodeID, name string) string {
	return p.state.Load().Member(node, name)
}

// Take applies the records of reserved kinds among all records in force, and reports whether the
// state has changed. The caller then judges all entries again.
func (p *Policy) Take(records []*engine.Record) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.state.Load()
	var enrollments []*engine.Record
	for _, r := range records {
		switch r.Key.Kind {
		case trust.KindEnrollment:
			enrollments = append(enrollments, r)
		case trust.KindFile:
			if !r.Deleted && !bytes.Equal(r.Body, before.Text()) {
				p.accept(r.Body, FromPool)
			}
		}
	}
	state := p.state.Load()
	if state == before && sameRecords(enrollments, p.enrollments) {
		return false
	}
	p.enrollments = enrollments
	p.state.Store(state.Enrolled(enrollments, p.o.Now()))
	return true
}

func sameRecords(a, b []*engine.Record) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Version() != b[i].Version() {
			return false
		}
	}
	return true
}

// Tick applies the expiry of enrollments, and reports whether the state has changed.
func (p *Policy) Tick() (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.state.Load()
	now := p.o.Now()
	if at := state.Expires(); at.IsZero() || !now.After(at) {
		return false
	}
	p.state.Store(state.Enrolled(p.enrollments, now))
	return true
}

// Configure applies changed keys of the config, reads trust.file again, and reports whether the
// state has changed.
func (p *Policy) Configure(mode, admit string) (changed bool) {
	p.mu.Lock()
	p.o.Mode, p.o.Admit = mode, admit
	before := p.state.Load()
	p.state.Store(before.Configured(p.options()))
	p.mu.Unlock()
	p.readAnchor()
	return true
}

// SetSelf changes the ID of this node.
func (p *Policy) SetSelf(id engine.NodeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.o.Self = id
	p.state.Store(p.state.Load().Configured(p.options()))
}

// Adopt makes a trust file the first one of this node, because an operator of the node says so. It
// fails if the node has one already.
func (p *Policy) Adopt(text []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.state.Load()
	if f := state.File(); f != nil {
		return fmt.Errorf("this node has a trust file already (version %d); change it with: nearside trust update -f FILE",
			f.Version)
	}
	next, err := state.Adopt(text)
	if err != nil {
		return err
	}
	return p.set(next, pin{From: FromAPI, Since: p.o.Now().UTC()})
}

// accept applies a trust file that follows the one in force.
func (p *Policy) accept(text []byte, from string) {
	state := p.state.Load()
	next, err := state.Accept(text)
	if errors.Is(err, trust.ErrDisagree) {
		p.problems["file"] = err.Error() + ": nearside trust update -f FILE"
		return
	}
	if err != nil {
		return // the engine lists the record
	}
	pinned := p.pinned
	if state.File() == nil {
		pinned = pin{From: from, Since: p.o.Now().UTC()}
	}
	delete(p.problems, "file")
	_ = p.set(next, pinned) // problems has the error
}

// set puts a state in force, and saves its trust file.
func (p *Policy) set(next *trust.State, pinned pin) error {
	pinned.File = string(next.Text())
	sum := sha256.Sum256(next.Text())
	pinned.Sum = hex.EncodeToString(sum[:])
	p.state.Store(next.Enrolled(p.enrollments, p.o.Now()))
	p.pinned = pinned
	if p.o.Dir == "" {
		return nil
	}
	b, _ := json.MarshalIndent(pinned, "", "  ") // strings always have a JSON form
	err := files.ReplacePrivate(filepath.Join(p.o.Dir, pinFile), append(b, '\n'))
	if err != nil {
		p.problems["pin"] = fmt.Sprintf("the trust file cannot be saved, so a restart of this agent loads an earlier one: %v",
			err)
		return fmt.Errorf("save the trust file: %w", err)
	}
	delete(p.problems, "pin")
	return nil
}

// readPin reads the saved trust file.
func (p *Policy) readPin() (out pin, err error) {
	if p.o.Dir == "" {
		return out, fs.ErrNotExist
	}
	path := filepath.Join(p.o.Dir, pinFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, missing := os.Lstat(path); missing == nil {
			return out, errors.New("it is a symbolic link to a file that does not exist")
		}
	}
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return out, errors.New("it is damaged")
	}
	if sum := sha256.Sum256([]byte(out.File)); hex.EncodeToString(sum[:]) != out.Sum {
		return out, errors.New("it is damaged: its checksum is wrong")
	}
	return out, nil
}

// readAnchor applies trust.file. It replaces a trust file that it does not precede or follow,
// unless the latter follows an earlier content of trust.file that is unchanged.
func (p *Policy) readAnchor() {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.problems, "anchor")
	if p.o.File == "" {
		return
	}
	fault := func(err error) {
		p.problems["anchor"] = fmt.Sprintf("trust.file: %v; the trust file in force stays", err)
	}
	text, err := readFile(p.o.File)
	if errors.Is(err, fs.ErrNotExist) {
		p.problems["anchor"] = fmt.Sprintf("trust.file: %s does not exist; copy the trust file of the pool there, or unset "+
			"trust.file", p.o.File)
		return
	}
	if err != nil {
		fault(err)
		return
	}
	sum := sha256.Sum256(text)
	anchor := hex.EncodeToString(sum[:])
	state := p.state.Load()
	if state.File() != nil && state.Damage() == "" && p.pinned.Anchor == anchor {
		return
	}
	next, err := state.Adopt(text)
	if err != nil {
		fault(err)
		return
	}
	pinned := pin{From: FromFile, Since: p.o.Now().UTC(), Anchor: anchor}
	if state.File() != nil && state.Damage() == "" {
		_, follows := next.Check(state.Text())
		if follows == nil { // the file in force is a later one of the same roots
			next, pinned.From, pinned.Since = state, cmp.Or(p.pinned.From, FromFile), p.pinned.Since
		}
	}
	_ = p.set(next, pinned) // problems has the error
}

func readFile(path string) ([]byte, error) {
	f, err := files.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, trust.MaxFile+1))
}

// ConfigMode returns trust.mode of the config.
func (p *Policy) ConfigMode() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.o.Mode
}

// First returns how the node got its first trust file, and when. from is "" without one.
func (p *Policy) First() (from string, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pinned.From, p.pinned.Since
}

// Disagrees records why the trust file of another node was refused; "" ends it.
func (p *Policy) Disagrees(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why == "" {
		delete(p.problems, "file")
	} else {
		p.problems["file"] = why
	}
}

// Problems returns the faults of the trust of this node, in a fixed order.
func (p *Policy) Problems() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, topic := range [...]string{"pin", "anchor", "file"} {
		if why := p.problems[topic]; why != "" {
			out = append(out, why)
		}
	}
	return out
}
