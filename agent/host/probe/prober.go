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

// Options configures a [Prober]. Peer is required.
type Options struct {
	// Peer returns the process of a proxy, and false if the proxy has no stream.
	Peer func(node.Key) (access.Peer, bool)
	// Changed is called when the result of [Prober.Host] changes. It must not block. It may be nil.
	Changed func()
	// Own is a directory whose files the agent creates on demand; they are not examined. "": none.
	Own string
	// Refused returns an error if no Envoy must write a file. It may be nil.
	Refused func(path string) error
	// Root is the root of the file system with /proc and /etc; "": /.
	Root string
	// Every is the interval of examinations, by default 5 s. Patience is how long [Prober.Host]
	// waits for the first examination, by default 100 ms.
	Every, Patience time.Duration
}

// maxFiles limits the files of one proxy that are examined.
const maxFiles = 64

// Prober examines the hosts of proxies. It is safe for concurrent use.
type Prober struct {
	o    Options
	wake chan struct{} // one slot

	mu      sync.Mutex
	proxies map[node.Key]*proxy
	late    bool // the last examination with a waiting caller was not done in time
}

// proxy is the state of one proxy. The mu of the prober protects all fields except for servers.
type proxy struct {
	peer     access.Peer
	files    []string
	host     *finding.Host // nil before the first examination
	returned *finding.Host // last result of Host
	pending  chan struct{} // closed after the files have been examined, and then nil
	waited   int           // calls of Host that wait for pending

	servers string // name servers when the process was first seen; used only by Run
}

// NewProber returns a prober that is inactive until [Prober.Run].
func NewProber(o Options) *Prober {
	o.Root = cmp.Or(o.Root, "/")
	o.Every = cmp.Or(o.Every, 5*time.Second)
	o.Patience = cmp.Or(o.Patience, 100*time.Millisecond)
	return &Prober{o: o, wake: make(chan struct{}, 1), proxies: map[node.Key]*proxy{}}
}

// Host returns the state of the host of a proxy whose config names these files, or nil if it is
// unknown. The result is the same pointer as long as nothing changes. The first call for a process,
// or with other files, waits for up to Patience.
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
	x.returned = x.host
	return x.host
}

// await requests an examination and waits briefly for it, since a file system may hang. The caller
// must hold mu.
func (p *Prober) await(x *proxy) {
	select {
	case p.wake <- struct{}{}:
	default: // an examination is already requested
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

// Run examines hosts until ctx ends.
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

// look examines the hosts of all proxies, or only those that are pending.
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
			changed = changed || x.host != x.returned && x.waited == 0
		}
		if pending != nil && (host != nil || !connected) {
			close(pending)
			if x.pending = nil; !slices.Equal(x.files, files) {
				x.pending = make(chan struct{}) // Host got other files concurrently and requested another examination
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
