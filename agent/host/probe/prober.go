package probe

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Options is what a [Prober] needs. Peer is required.
type Options struct {
	// Peer returns the process of a proxy; false where it has no stream.
	Peer func(node.Key) (access.Peer, bool)
	// Changed is called when something is not as [Prober.Host] has said. It must not block. Nil:
	// nobody is told.
	Changed func()
	// Own is a directory whose files the agent makes itself when they are needed: they are not looked
	// at. "": none.
	Own string
	// Root is where the file system begins, with /proc and /etc; "": /.
	Root string
	// Every is the time from one look to the next, default 5 s; Patience is how long [Prober.Host]
	// waits for the first look, default 100 ms.
	Every, Patience time.Duration
}

// maxFiles bounds the files of one proxy that are looked at.
const maxFiles = 64

// Prober knows the hosts of proxies. It is safe for concurrent use.
type Prober struct {
	o    Options
	wake chan struct{} // one slot

	mu      sync.Mutex
	proxies map[node.Key]*proxy
	late    bool // the last look that somebody waited for was not done in time
}

// proxy is what is known of one. The mu of the prober guards all but servers.
type proxy struct {
	peer    access.Peer
	files   []string
	host    *finding.Host // nil before the first look
	told    *finding.Host // what Host has returned last
	pending chan struct{} // closed once files have been looked at, and nil from then on
	waited  int           // calls of Host that wait for that

	servers string // name servers when the process was seen first; of the goroutine that looks
}

// NewProber returns a prober that looks at nothing until [Prober.Run].
func NewProber(o Options) *Prober {
	o.Root = cmp.Or(o.Root, "/")
	o.Every = cmp.Or(o.Every, 5*time.Second)
	o.Patience = cmp.Or(o.Patience, 100*time.Millisecond)
	return &Prober{o: o, wake: make(chan struct{}, 1), proxies: map[node.Key]*proxy{}}
}

// Host returns what is known of the host of a proxy whose config names these files; nil where
// nothing is. The result is the same pointer as long as nothing changes. The first call for a
// process or for other files waits a moment.
func (p *Prober) Host(key node.Key, files []string) *finding.Host {
	peer, ok := p.o.Peer(key)
	files = files[:min(len(files), maxFiles)]
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.proxies[key]
	if !ok || !peer.Local || peer.PID <= 0 {
		delete(p.proxies, key)
		return nil
	}
	if x == nil || x.peer.PID != peer.PID || x.peer.UID != peer.UID {
		x = &proxy{peer: peer, pending: make(chan struct{})}
		p.proxies[key] = x
	} else if !slices.Equal(x.files, files) && x.pending == nil {
		x.pending = make(chan struct{})
	}
	if !slices.Equal(x.files, files) || x.host == nil {
		x.files = files
		p.await(x)
	}
	x.told = x.host
	return x.host
}

// await asks for a look and waits until it is done, but not long: a file system may hang. The mu is
// held.
func (p *Prober) await(x *proxy) {
	select {
	case p.wake <- struct{}{}:
	default: // it looks soon
	}
	if p.late {
		return
	}
	pending := x.pending
	x.waited++
	p.mu.Unlock()
	patience := time.NewTimer(p.o.Patience)
	defer patience.Stop()
	late := false
	select {
	case <-pending:
	case <-patience.C:
		late = true
	}
	p.mu.Lock()
	x.waited--
	p.late = p.late || late
}

// Run looks until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	t := time.NewTicker(p.o.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			p.look(false)
		case <-t.C:
			p.look(true)
		}
	}
}

// look looks at the hosts of all proxies, or of those that were not looked at yet.
func (p *Prober) look(all bool) {
	p.mu.Lock()
	proxies := maps.Clone(p.proxies)
	p.mu.Unlock()
	changed := false
	for key, x := range proxies {
		_, connected := p.o.Peer(key)
		p.mu.Lock()
		pending, files := x.pending, x.files
		p.mu.Unlock()
		var host *finding.Host
		if connected && (pending != nil || all) {
			host = p.examine(x, files)
		}
		p.mu.Lock()
		switch {
		case !connected && p.proxies[key] == x:
			delete(p.proxies, key)
		case host != nil && (x.host == nil || !equal(x.host, host)):
			x.host = host
		}
		if host != nil {
			p.late = false
			changed = changed || x.host != x.told && x.waited == 0
		}
		if pending != nil && (host != nil || !connected) {
			close(pending)
			if x.pending = nil; !slices.Equal(x.files, files) {
				x.pending = make(chan struct{}) // others came meanwhile, with another wake
			}
		}
		p.mu.Unlock()
	}
	if changed && p.o.Changed != nil {
		p.o.Changed()
	}
}

func equal(a, b *finding.Host) bool {
	return maps.Equal(a.Unwritable, b.Unwritable) && a.Guessed == b.Guessed && a.OpenFiles == b.OpenFiles &&
		a.Workers == b.Workers && a.Resolver == b.Resolver
}
