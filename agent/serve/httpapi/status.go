package httpapi

import (
	"cmp"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// kumactlVersion is a suffix of the version at GET /. kumactl accepts any server whose version
// contains "preview", without comparing versions.
const kumactlVersion = "+kuma.preview"

func (s *Server) index(w http.ResponseWriter, _ *http.Request) *api.Error {
	info := s.opts.Info
	out := api.Index{Info: info, Tagline: info.Product, InstanceID: info.Instance, ClusterID: cmp.Or(info.Zone, "default")}
	out.Hostname, _ = os.Hostname() // "" if it is unknown
	out.Version += kumactlVersion
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) livez(w http.ResponseWriter, r *http.Request) *api.Error {
	return health(w, r, s.opts.Live)
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) *api.Error {
	return health(w, r, s.opts.Ready)
}

// health answers 200 or 503. It lists failed checks always, and successful ones only with verbose.
func health(w http.ResponseWriter, r *http.Request, checks func() []api.Check) *api.Error {
	_, verbose := r.URL.Query()["verbose"]
	out := api.Health{Status: "ok"}
	status := http.StatusOK
	if checks != nil {
		for _, c := range checks() {
			if !c.OK {
				out.Status, status = "failed", http.StatusServiceUnavailable
			}
			if verbose || !c.OK {
				out.Checks = append(out.Checks, c)
			}
		}
	}
	writeJSON(w, status, out)
	return nil
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) *api.Error {
	s.catchUp(r)
	visible, whole := s.visible(r, access.VerbInspect), s.may(r, access.VerbInspect, resource.Key{})
	snap := s.opts.Store.Snapshot()
	out := api.Status{
		Info: s.opts.Info, Ready: true, Checks: []api.Check{}, Files: []api.FileStatus{}, Proxies: map[string]int{},
		Problems: []api.Problem{},
		Store:    api.StoreStatus{Revision: snap.Revision(), Resources: map[string]int{}, Sources: map[string]int{}},
	}
	for _, rec := range snap.Records() {
		if !visible(rec.Key) {
			continue
		}
		out.Store.Resources[rec.Kind]++
		out.Store.Sources[rec.Source.Kind]++
	}
	for kind, n := range out.Store.Resources {
		if d, ok := s.opts.Registry.Lookup(kind); ok && d.Inert {
			if out.Store.Inert == nil {
				out.Store.Inert = map[string]int{}
			}
			out.Store.Inert[kind] = n
		}
	}
	if s.opts.Ready != nil {
		out.Checks = append(out.Checks, s.opts.Ready()...)
		out.Ready = !slices.ContainsFunc(out.Checks, func(c api.Check) bool { return !c.OK })
	}
	if s.opts.Files != nil && whole { // a file may contain any resource
		out.Files = append(out.Files, s.opts.Files()...)
	}
	if s.opts.Memory != nil {
		m := s.opts.Memory()
		out.Memory = &m
	}
	if s.opts.Refused != nil {
		out.Refused = s.opts.Refused()
	}
	last := s.opts.Last()
	if last != nil {
		out.Reconcile = &api.ReconcileStatus{Revision: last.Revision, At: last.At, Seconds: last.Duration.Seconds(),
			Behind: last.Behind}
	}
	everyProxy := s.tracker.All(snap, last)
	out.Problems, out.Unchecked = s.tracker.Problems(r.Context(), snap, last, everyProxy, s.limits.LookTime)
	if !whole {
		out.Problems = only(out.Problems, func(p api.Problem) resource.Key { return keyOf(p.Resource) }, visible)
	}
	all := only(everyProxy, proxyKey, visible)
	for _, p := range all {
		out.Proxies[p.State]++
	}
	s.addCounts(all)
	out.RefusedConnections = status.Refusals(all)
	out.Problems = append(out.Problems, status.LostLines(all)...)
	if s.opts.Holders != nil {
		out.Holders = s.opts.Holders()
	}
	if streams := s.logStreams(r); len(streams) > 0 {
		out.LogLines = logLines(streams)
	}
	if s.opts.DNSLine != nil {
		out.DNS = s.opts.DNSLine()
	}
	h := s.opts.Store.Health()
	out.Store.Persistent, out.Store.Pending, out.Store.SetAside = h.Persistent, h.Pending, h.SetAside
	if h.Err != nil {
		out.Store.Error = h.Err.Error()
	}
	for _, q := range h.Quarantined {
		if !whole {
			break
		}
		out.Store.Quarantined = append(out.Store.Quarantined,
			api.Quarantined{Bucket: q.Bucket, Key: q.Key, Reason: q.Reason, Restored: q.Restored})
	}
	for _, d := range snap.AllDamaged() {
		if !whole {
			break
		}
		out.Store.Damaged = append(out.Store.Damaged,
			api.Damaged{Type: d.Key.Kind, Mesh: d.Key.Mesh, Name: d.Key.Name, Reason: d.Reason, Since: d.Since})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// keyOf parses the form of [resource.Key.String].
func keyOf(text string) resource.Key {
	parts := strings.SplitN(text, "/", 3)
	switch len(parts) {
	case 3:
		return resource.Key{Kind: parts[0], Mesh: parts[1], Name: parts[2]}
	case 2:
		return resource.Key{Kind: parts[0], Name: parts[1]}
	}
	return resource.Key{Kind: text}
}

// names is GET /v1/names?kind=&mesh=&prefix=: the names of resources, or of kinds without kind.
func (s *Server) names(w http.ResponseWriter, r *http.Request) *api.Error {
	q := r.URL.Query()
	out := api.Names{Names: []string{}}
	prefix := q.Get("prefix")
	add := func(name string) {
		if strings.HasPrefix(name, prefix) && len(out.Names) < maxPage {
			out.Names = append(out.Names, name)
		}
	}
	if kind := q.Get("kind"); kind == "" {
		for _, d := range s.opts.Registry.All() {
			add(d.Plural)
		}
	} else {
		d, ok := s.opts.Registry.Lookup(kind)
		if !ok {
			return invalidQuery("kind", kind, "give the name of a kind, or omit it to list kinds")
		}
		mesh := q.Get("mesh")
		if d.Scope != resource.ScopeMesh {
			mesh = ""
		}
		p := peerOf(r)
		if err := s.opts.Access.Roles.CanSome(&p,
			access.Action{Verb: access.VerbList, Kind: d.Kind, Mesh: mesh}); err != nil {
			return denied(err)
		}
		set := s.opts.Store.Snapshot().Set()
		all := set.Kind(d.Kind)
		if mesh != "" {
			all = set.InMesh(d.Kind, mesh)
		}
		for _, res := range only(all, resourceKey, s.visible(r, access.VerbList)) {
			add(res.Name)
		}
	}
	slices.Sort(out.Names)
	out.Names = slices.Compact(out.Names)
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) kinds(w http.ResponseWriter, _ *http.Request) *api.Error {
	writeJSON(w, http.StatusOK, api.Kinds{Items: render.Kinds(s.opts.Registry)})
	return nil
}
