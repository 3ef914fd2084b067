package status

import (
	"context"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// View is the part of a status that a sender may see.
type View struct {
	Visible func(resource.Key) bool // nil: every resource
	Whole   bool                    // files and unreadable resources, which may have any content
	Time    time.Duration           // bound of sources with long computations
}

// Status returns the status of the agent with its list of problems.
func (t *Tracker) Status(ctx context.Context, v View) *api.Status {
	snap, last := t.Store.Snapshot(), t.Last()
	out := &api.Status{Info: t.Info, Ready: true, Checks: []api.Check{}, Files: []api.FileStatus{},
		Proxies: map[string]int{}}
	t.addStore(out, &v)
	p := &t.Parts
	if p.Ready != nil {
		out.Checks = append(out.Checks, p.Ready()...)
		out.Ready = !slices.ContainsFunc(out.Checks, func(c api.Check) bool { return !c.OK })
	}
	if p.Host != nil {
		out.Checks = append(out.Checks, p.Host(ctx)...)
	}
	if p.Files != nil && v.Whole {
		out.Files = append(out.Files, p.Files()...)
	}
	if p.Memory != nil {
		m := p.Memory()
		out.Memory = &m
	}
	out.Refused = t.Refusals(&v)
	if last != nil {
		out.Reconcile = &api.ReconcileStatus{Revision: last.Revision, At: last.At, Seconds: last.Duration.Seconds(),
			Behind: last.Behind}
	}
	if p.Holders != nil {
		out.Holders = p.Holders()
	}
	out.LogLines = t.logLines(&v)
	if p.DNSLine != nil {
		out.DNS = p.DNSLine()
	}
	all := t.All(snap, last)
	if p.Counts != nil {
		AddCounts(all, p.Counts())
	}
	f := &Facts{Snap: snap, Last: last, Proxies: all, Status: out, Until: time.Now().Add(v.Time)}
	out.Problems = slices.DeleteFunc(t.Problems(ctx, f), func(x api.Problem) bool {
		return !v.Shows(&x)
	})
	out.Unchecked, out.Unexamined = f.Unchecked, f.Unexamined
	all = slices.DeleteFunc(all, func(x api.Proxy) bool { return !v.sees(Key(&x)) })
	for i := range all {
		out.Proxies[all[i].State]++
	}
	out.RefusedConnections, out.InspectionTimeouts = Refusals(all), Timeouts(all)
	out.Old = t.Draining(ctx, v.sees)
	return out
}

// Shows reports whether a problem belongs to the view.
func (v *View) Shows(p *api.Problem) bool {
	return p.Resource == "" || v.Whole || v.sees(ProblemKey(p))
}

func (v *View) sees(k resource.Key) bool { return v.Visible == nil || v.Visible(k) }

// addStore adds the state of the store.
func (t *Tracker) addStore(out *api.Status, v *View) {
	snap, h := t.Store.Snapshot(), t.Store.Health()
	out.Store = api.StoreStatus{Revision: snap.Revision(), Resources: map[string]int{}, Sources: map[string]int{},
		Persistent: h.Persistent, Pending: h.Pending, SetAside: h.SetAside}
	s := &out.Store
	for _, rec := range snap.Records() {
		if !v.sees(rec.Key) || resource.Internal(rec.Kind) {
			continue
		}
		s.Resources[rec.Kind]++
		s.Sources[rec.Source.Kind]++
	}
	for kind, n := range s.Resources {
		if d, ok := t.Registry.Lookup(kind); ok && d.Inert {
			if s.Inert == nil {
				s.Inert = map[string]int{}
			}
			s.Inert[kind] = n
		}
	}
	if h.Err != nil {
		s.Error = h.Err.Error()
	}
	if !v.Whole {
		return
	}
	for _, q := range h.Quarantined {
		s.Quarantined = append(s.Quarantined,
			api.Quarantined{Bucket: q.Bucket, Key: q.Key, Reason: q.Reason, Restored: q.Restored})
	}
	for _, d := range snap.AllDamaged() {
		s.Damaged = append(s.Damaged,
			api.Damaged{Type: d.Key.Kind, Mesh: d.Key.Mesh, Name: d.Key.Name, Reason: d.Reason, Since: d.Since})
	}
}

// LogStreams returns the visible streams of access logs. Destinations contain lines of all
// dataplanes, so that only a view of the whole has them.
func (t *Tracker) LogStreams(v *View) []api.LogStream {
	if t.Parts.Logs == nil {
		return nil
	}
	return slices.DeleteFunc(t.Parts.Logs.Streams(), func(x api.LogStream) bool {
		return !v.Whole && (x.Mesh == "" || x.Dataplane == "" ||
			!v.sees(resource.Key{Kind: kindDataplane, Mesh: x.Mesh, Name: x.Dataplane}))
	})
}

// logLines sums up the visible streams, nil for none. It counts input where lines enter the agent,
// and output where they leave it.
func (t *Tracker) logLines(v *View) *api.LogLines {
	streams := t.LogStreams(v)
	var unlogged api.ListenerTraffic
	if t.Parts.Logs != nil && v.Whole {
		unlogged = t.Parts.Logs.Unrecorded()
	}
	if len(streams) == 0 && unlogged == (api.ListenerTraffic{}) {
		return nil
	}
	out := &api.LogLines{Streams: len(streams), Dropped: map[string]uint64{}, Unlogged: unlogged}
	for i := range streams {
		s := &streams[i]
		if s.Kind == api.LogFIFO || s.Kind == api.LogReceiver || s.Kind == api.LogOTLP {
			out.Read += s.In
		}
		if s.Kind != api.LogFIFO && s.Kind != api.LogReceiver { // counted by the stream of the file or collector
			out.Written += s.Written
		}
		out.Spooled += s.Spooled
		out.SpoolOldest = max(out.SpoolOldest, s.SpoolOldest)
		out.Refused += s.Refused
		out.InFlight += s.InFlight
		for cause, n := range s.Dropped {
			out.Dropped[cause] += n
		}
	}
	return out
}
