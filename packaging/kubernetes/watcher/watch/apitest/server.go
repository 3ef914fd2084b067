// Package apitest is an API server for tests: lists in pages, watches, and every way to fail.
package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Object is an object in JSON form.
type Object = map[string]any

// Server is an API server with objects in memory.
type Server struct {
	*httptest.Server

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced by each change
	version  int
	kinds    map[string]*kind // by path of the list, such as /api/v1/pods
	down     bool
	broken   map[string]int // status code of lists, by path
	hang     map[string]bool
	requests map[string]int // lists, by path
}

type kind struct {
	path    string
	objects map[string]Object // by namespace/name
	events  []event
	expired int // events up to this version are forgotten
}

type event struct {
	version int
	text    []byte
	meta    []byte // the same with metadata only
}

// Paths of lists.
const (
	Pods       = "/api/v1/pods"
	Services   = "/api/v1/services"
	Namespaces = "/api/v1/namespaces"
	Nodes      = "/api/v1/nodes"
	ConfigMaps = "/api/v1/configmaps"
	Slices     = "/apis/discovery.k8s.io/v1/endpointslices"
	Kuma       = "/apis/kuma.io/v1alpha1"
)

// New starts a server. It ends with the test.
func New(t testing.TB) *Server {
	s := &Server{changed: make(chan struct{}), version: 100, kinds: map[string]*kind{}, broken: map[string]int{},
		hang: map[string]bool{}, requests: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	for _, path := range []string{Pods, Services, Namespaces, Nodes, ConfigMaps, Slices} {
		s.kind(path)
	}
	t.Cleanup(func() {
		s.Down(true)
		s.Server.Close()
	})
	return s
}

// Config returns the config of a client.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.URL} }

func (s *Server) kind(path string) *kind {
	if s.kinds[path] == nil {
		s.kinds[path] = &kind{path: path, objects: map[string]Object{}}
	}
	return s.kinds[path]
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Define makes a kind of the group kuma.io known, such as meshtimeouts and MeshTimeout.
func (s *Server) Define(plural string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kind(Kuma + "/" + plural)
}

// Put creates or replaces an object.
func (s *Server) Put(path string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var o Object
	if err := json.Unmarshal(text, &o); err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kind(path)
	kind := "ADDED"
	if k.objects[name(o)] != nil {
		kind = "MODIFIED"
	}
	s.record(k, kind, o)
	k.objects[name(o)] = o
	s.wake()
}

// Delete deletes an object by NAMESPACE/NAME.
func (s *Server) Delete(path, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kind(path)
	if o := k.objects[key]; o != nil {
		delete(k.objects, key)
		s.record(k, "DELETED", o)
		s.wake()
	}
}

// Forget removes an object without an event, as if it were missing in a list.
func (s *Server) Forget(path, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kind(path).objects, key)
}

func name(o Object) string {
	m, _ := o["metadata"].(map[string]any)
	ns, _ := m["namespace"].(string)
	return ns + "/" + fmt.Sprint(m["name"])
}

func (s *Server) record(k *kind, what string, o Object) {
	s.version++
	o["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.version)
	o["kind"], o["apiVersion"] = strings.TrimSuffix(listKind(k.path), "List"), version(k.path)
	encode := func(o Object) []byte {
		text, err := json.Marshal(map[string]any{"type": what, "object": o})
		if err != nil {
			panic(err)
		}
		return text
	}
	k.events = append(k.events, event{s.version, encode(o), encode(partial(o))})
}

func partial(o Object) Object {
	return Object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
}

// Down closes all connections, and answers with errors until it is called with false.
func (s *Server) Down(down bool) {
	s.mu.Lock()
	s.down = down
	s.wake()
	s.mu.Unlock()
	if down {
		s.CloseClientConnections()
	}
}

// Expire forgets all events and ends the watches with the error 410.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += 10
	for _, k := range s.kinds {
		k.events, k.expired = nil, s.version
	}
	s.wake()
}

// Break makes lists of a path fail with a status code; 0 repairs them.
func (s *Server) Break(path string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[path] = code
}

// Hang makes the second page of lists of a path wait for ever.
func (s *Server) Hang(path string, hang bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hang[path] = hang
	s.wake()
}

// Lists returns how many lists of a path have been requested.
func (s *Server) Lists(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[path]
}

func (s *Server) serve(rw http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.down {
		s.mu.Unlock()
		failed(rw, http.StatusServiceUnavailable, "ServiceUnavailable")
		return
	}
	path, only := r.URL.Path, ""
	if before, after, ok := strings.Cut(path, "/namespaces/"); ok { // a list of one namespace
		if ns, resource, ok := strings.Cut(after, "/"); ok {
			path, only = before+"/"+resource, ns+"/"
		}
	}
	q := r.URL.Query()
	k, watch := s.kinds[path], q.Get("watch") == "true" || q.Get("watch") == "1"
	if !watch {
		s.requests[path]++
	}
	code := s.broken[path]
	if code == 0 && k == nil && path != Kuma {
		code = http.StatusNotFound
	}
	if code != 0 && !watch {
		s.mu.Unlock()
		failed(rw, code, map[int]string{403: "Forbidden", 404: "NotFound", 500: "InternalError"}[code])
		return
	}
	asMeta := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	switch {
	case path == Kuma:
		s.discovery(rw)
		s.mu.Unlock()
	case watch:
		s.watch(rw, r, k, asMeta)
	default:
		s.list(rw, r, path, k, only, asMeta)
	}
}

func failed(rw http.ResponseWriter, code int, reason string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	fmt.Fprintf(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
}

func (s *Server) discovery(rw http.ResponseWriter) {
	var list []Object
	for path := range s.kinds {
		if plural, ok := strings.CutPrefix(path, Kuma+"/"); ok {
			list = append(list, Object{"name": plural, "namespaced": true, "kind": KindOf(plural), "verbs": []string{"list", "watch"}},
				Object{"name": plural + "/status", "namespaced": true, "kind": KindOf(plural), "verbs": []string{"get"}})
		}
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(Object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "kuma.io/v1alpha1",
		"resources": list})
}

// KindOf returns the kind for a plural that this server knows.
func KindOf(plural string) string {
	return map[string]string{"meshtimeouts": "MeshTimeout", "meshes": "Mesh", "dataplanes": "Dataplane",
		"meshexternalservices": "MeshExternalService", "meshtrafficpermissions": "MeshTrafficPermission"}[plural]
}

// list answers with a page. s.mu is held, and released.
func (s *Server) list(rw http.ResponseWriter, r *http.Request, path string, k *kind, only string, asMeta bool) {
	q := r.URL.Query()
	var names []string
	for n, o := range k.objects {
		if strings.HasPrefix(n, only) && selected(o, q.Get("fieldSelector")) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	limit, _ := strconv.Atoi(q.Get("limit"))
	start, _ := strconv.Atoi(q.Get("continue"))
	more := ""
	names = names[min(start, len(names)):]
	if limit > 0 && len(names) > limit {
		names, more = names[:limit], strconv.Itoa(start+limit)
	}
	for start > 0 && s.hang[path] && !s.down {
		wait := s.changed
		s.mu.Unlock()
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
		s.mu.Lock()
	}
	items := []Object{}
	for _, n := range names {
		o := k.objects[n]
		if asMeta {
			o = partial(o)
		}
		items = append(items, o)
	}
	out := Object{"metadata": Object{"resourceVersion": strconv.Itoa(s.version), "continue": more}, "items": items}
	out["kind"], out["apiVersion"] = listKind(path), version(path)
	if asMeta {
		out["kind"], out["apiVersion"] = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	text, err := json.Marshal(out)
	s.mu.Unlock()
	if err != nil {
		panic(err)
	}
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(text)
}

func version(path string) string {
	switch {
	case strings.HasPrefix(path, Kuma):
		return "kuma.io/v1alpha1"
	case path == Slices:
		return "discovery.k8s.io/v1"
	}
	return "v1"
}

func listKind(path string) string {
	switch path {
	case Namespaces:
		return "NamespaceList"
	case Nodes:
		return "NodeList"
	case Pods:
		return "PodList"
	case Services:
		return "ServiceList"
	case ConfigMaps:
		return "ConfigMapList"
	case Slices:
		return "EndpointSliceList"
	}
	return KindOf(strings.TrimPrefix(path, Kuma+"/")) + "List"
}

func selected(o Object, field string) bool {
	key, want, _ := strings.Cut(field, "=")
	switch key {
	case "metadata.name":
		return strings.HasSuffix(name(o), "/"+want)
	case "spec.nodeName":
		spec, _ := o["spec"].(map[string]any)
		return spec["nodeName"] == want
	}
	return true
}

// watch streams events. s.mu is held, and released.
func (s *Server) watch(rw http.ResponseWriter, r *http.Request, k *kind, asMeta bool) {
	defer s.mu.Unlock()
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	field := r.URL.Query().Get("fieldSelector")
	rw.Header().Set("Content-Type", "application/json")
	flush := http.NewResponseController(rw)
	_ = flush.Flush()
	for !s.down {
		if since < k.expired {
			fmt.Fprintln(rw, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
			return
		}
		for _, e := range k.events {
			var one struct{ Object Object }
			if e.version <= since || json.Unmarshal(e.text, &one) != nil || !selected(one.Object, field) {
				continue
			}
			text := e.text
			if asMeta {
				text = e.meta
			}
			_, _ = rw.Write(append(slices.Clip(text), '\n'))
			since = e.version
		}
		_ = flush.Flush()
		wait := s.changed
		s.mu.Unlock()
		select {
		case <-wait:
		case <-r.Context().Done():
		}
		s.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
	panic(http.ErrAbortHandler)
}
