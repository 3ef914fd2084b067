// Package cluster follows the objects of a Kubernetes cluster and tells which files they need.
//
// Objects change only by events and by complete lists. A request that fails, an incomplete list, and
// a list that cannot be right change nothing.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/convert"
	"github.com/nearside-mesh/nearside/packaging/kubernetes/watcher/watch/outdir"
)

// Group is a directory of files.
type Group string

// Groups of files.
const (
	Pods      Group = "pods"      // Dataplanes
	Services  Group = "services"  // MeshServices
	Resources Group = "resources" // content of the ConfigMap
	Policies  Group = "policies"  // custom resources of Kuma
)

// Groups returns all groups.
func Groups() []Group { return []Group{Pods, Services, Resources, Policies} }

// Item is the source of one file.
type Item struct {
	Group Group
	Kind  string // only of custom resources
	convert.Key
}

// File returns the name of the item's file.
func (i Item) File() string {
	switch i.Group {
	case Resources:
		return outdir.Name(strings.TrimSuffix(i.Name, ".yaml"))
	case Policies:
		parts := []string{strings.ToLower(i.Kind)}
		if i.Namespace != "" {
			parts = append(parts, i.Namespace)
		}
		return outdir.Name(append(parts, i.Name)...)
	}
	return outdir.Name(i.Namespace, i.Name)
}

// Compare orders items.
func (i Item) Compare(o Item) int {
	return cmp.Or(cmp.Compare(i.Group, o.Group), cmp.Compare(i.Kind, o.Kind), i.Key.Compare(o.Key))
}

// Desired is the content of an item's file.
type Desired struct {
	Text  []byte   // nil: there is no file
	Notes []string // what the user should know about the object
}

// Batch is what has changed since the previous one.
type Batch struct {
	Items map[Item]bool
	// Full lists the groups, and the kinds of custom resources, of which all objects are known: files
	// without an object can be deleted.
	Full  map[Group]bool
	Kinds map[string]bool
}

func newBatch() Batch { return Batch{map[Item]bool{}, map[Group]bool{}, map[string]bool{}} }

// Empty reports whether nothing has changed.
func (b *Batch) Empty() bool { return len(b.Items)+len(b.Full)+len(b.Kinds) == 0 }

// Options configures a [World].
type Options struct {
	Node   string   // the name of the node; "": pods of all nodes
	Self   string   // NAMESPACE/NAME of the watcher's own pod; "": it is not in the list
	Config string   // NAMESPACE/NAME of the ConfigMap of resources; "": none
	System []string // system namespaces
	Now    func() time.Time
}

// World holds the relevant parts of all objects. It is safe for concurrent use.
type World struct {
	o   Options
	now func() time.Time

	mu         sync.Mutex
	pods       *table[*convert.Pod]
	services   *table[*convert.Service]
	slices     *table[*convert.Slice]
	namespaces *table[*convert.Meta]
	nodes      *table[*convert.Meta]
	config     *table[map[string]string]
	policies   map[string]*table[*policy] // by kind

	byNamespace map[string]map[convert.Key]bool // Services
	byIP        map[string]map[convert.Key]bool // pods with a Dataplane
	ready       map[Group]bool                  // all objects of the group have been known once
	batch       Batch
	signal      chan struct{} // one slot
	outages     map[string]outage
}

// policy is a custom resource: the text of its file, or why there is none.
type policy struct {
	Text []byte
	Skip string
}

// New returns a world without objects.
func New(o Options) *World {
	w := &World{o: o, now: o.Now, byNamespace: map[string]map[convert.Key]bool{}, byIP: map[string]map[convert.Key]bool{},
		batch: newBatch(), signal: make(chan struct{}, 1), outages: map[string]outage{}, policies: map[string]*table[*policy]{},
		ready: map[Group]bool{}}
	if w.now == nil {
		w.now = time.Now
	}
	w.pods, w.services = newTable(w.podChanged), newTable(w.serviceChanged)
	w.slices = newTable(w.sliceChanged)
	w.namespaces, w.nodes = newTable(w.namespaceChanged), newTable(w.nodeChanged)
	w.config = newTable(w.configChanged)
	// A deleted ConfigMap changes nothing, like one that is mounted: its policies may be what keeps
	// others out. An empty one removes its resources.
	w.config.retain = true
	w.pods.accept, w.services.accept = w.acceptPods, acceptSome[*convert.Service]("Services")
	w.namespaces.accept = acceptSome[*convert.Meta]("Namespaces")
	w.nodes.accept = acceptSome[*convert.Meta]("Nodes")
	return w
}

// acceptPods refuses a list without the watcher's own pod.
func (w *World) acceptPods(list map[convert.Key]*convert.Pod) error {
	ns, name, ok := strings.Cut(w.o.Self, "/")
	if ok && list[convert.Key{Namespace: ns, Name: name}] == nil {
		return fmt.Errorf("the list of %d pods does not contain the pod %s of the watcher, so it cannot be complete",
			len(list), w.o.Self)
	}
	return nil
}

// acceptSome refuses an empty list of a kind of which each cluster has objects.
func acceptSome[T any](plural string) func(map[convert.Key]T) error {
	return func(list map[convert.Key]T) error {
		if len(list) == 0 {
			return errors.New("the list of " + plural + " is empty, so it cannot be complete")
		}
		return nil
	}
}

// Changed returns a channel that receives after changes.
func (w *World) Changed() <-chan struct{} { return w.signal }

// TakePods returns the changes of pods since the last call.
func (w *World) TakePods() Batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := newBatch()
	for i := range w.batch.Items {
		if i.Group == Pods && w.ready[Pods] {
			out.Items[i] = true
			delete(w.batch.Items, i)
		}
	}
	return out
}

// Take returns the changes since the last call, of groups whose objects are all known.
func (w *World) Take() Batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := newBatch()
	for g := range w.batch.Full {
		if w.ready[g] {
			out.Full[g] = true
			delete(w.batch.Full, g)
		}
	}
	out.Kinds, w.batch.Kinds = w.batch.Kinds, out.Kinds
	for i := range w.batch.Items {
		switch {
		case out.Full[i.Group] || i.Group == Policies && out.Kinds[i.Kind]: // contains it
		case w.ready[i.Group] || i.Group == Policies && w.policies[i.Kind].synced:
			out.Items[i] = true
		default:
			continue
		}
		delete(w.batch.Items, i)
	}
	return out
}

// Return gives items back that could not be written.
func (w *World) Return(b Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.batch.Items, b.Items)
	maps.Copy(w.batch.Full, b.Full)
	maps.Copy(w.batch.Kinds, b.Kinds)
}

// Status is what the world knows.
type Status struct {
	Reachable bool              // no request fails
	Since     time.Time         // when the first of the failing requests failed; zero if reachable
	Errors    map[string]string // by kind
	Waiting   []string          // kinds of which no complete list has arrived
	Pods      int               // watched
	Services  int
}

// Status returns the state of the connection and the number of objects.
func (w *World) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := Status{Reachable: len(w.outages) == 0, Errors: map[string]string{}, Pods: len(w.pods.objects),
		Services: len(w.services.objects)}
	for kind, o := range w.outages {
		out.Errors[kind] = o.err
		if out.Since.IsZero() || o.since.Before(out.Since) {
			out.Since = o.since
		}
	}
	for kind, synced := range map[string]bool{"pods": w.pods.synced, "services": w.services.synced,
		"endpointslices": w.slices.synced, "namespaces": w.namespaces.synced, "nodes": w.nodes.synced,
		"configmaps": w.config.synced || w.o.Config == ""} {
		if !synced {
			out.Waiting = append(out.Waiting, kind)
		}
	}
	slices.Sort(out.Waiting)
	return out
}

// Ready reports whether all pods and Services have been known once.
func (w *World) Ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready[Pods]
}

// Refresh marks everything that is known, so that all files are compared.
func (w *World) Refresh() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for g, ok := range w.ready {
		if ok {
			w.batch.Full[g] = true
		}
	}
	for kind, t := range w.policies {
		if t.synced {
			w.batch.Kinds[kind] = true
		}
	}
	w.wake()
}

// wake signals a change. w.mu is held.
func (w *World) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *World) mark(i Item) {
	w.batch.Items[i] = true
	w.wake()
}

// synced is called after the first complete list of a kind, which concerns all files: a later list
// marks the objects that differ. w.mu is held.
func (w *World) synced() {
	all := w.pods.synced && w.services.synced && w.slices.synced && w.namespaces.synced && w.nodes.synced
	if all && !w.ready[Pods] {
		w.ready[Pods], w.ready[Services] = true, true
		w.batch.Full[Pods], w.batch.Full[Services] = true, true
		w.wake()
	}
}
