// Package audited records one audit event for each API request, after its answer. The answer to a
// change waits until its event is in the file. Handlers add what the event needs: the route, the
// sender, the resources, and the changes. It starts no goroutines, and is safe for concurrent use.
package audited

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/secret"
	"github.com/nearside-mesh/nearside/agent/serve/audit"
	"github.com/nearside-mesh/nearside/agent/serve/auditlog"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// Log is the audit log. It is safe for concurrent use.
type Log interface {
	Profile() audit.Profile
	// Ready returns why the event of a change could not be stored. The change is then refused.
	Ready() error
	// Record queues an event, and never blocks.
	Record(*audit.Event)
	// Store writes the event of a change. It waits for a bounded time until the event is in the
	// file, and returns an error if it is not.
	Store(*audit.Event) error
	// Suppressed counts a refused request without an event.
	Suppressed()
}

// Requests records the events of requests. Set the fields before the first request.
type Requests struct {
	Log      Log // nil: records nothing
	Registry *resource.Registry
	Exists   func(resource.Key) bool
	Roles    *access.Roles
	Failed   *slog.Logger // for events that could not be stored

	accounts auditlog.Accounts
	refusals auditlog.Refusals
}

type recordKey struct{}

// Record collects the data for the audit event of a request.
type Record struct {
	profile  audit.Profile
	id       string
	received time.Time
	peer     access.Peer

	op        operation
	object    *audit.ObjectRef
	probe     bool // a probe was answered
	sensitive bool // a body may contain a secret
	decided   bool // the request was authorized or denied
	panicked  bool
	stored    bool // a change was stored, so the answer waits for the event
	dry       bool
	problem   *api.Error
	resources []*resource.Resource // of the body
	changes   []api.Change
	signers   []string // of signed records
}

// Of returns the record of a request. Without an audit log, it returns an unused record.
func Of(r *http.Request) *Record {
	if rec, ok := r.Context().Value(recordKey{}).(*Record); ok {
		return rec
	}
	return new(Record)
}

// Route is the route of a request.
type Route struct {
	Method, Pattern string
	Kind            string // of the permission that it needs; empty: from the path, or none
}

// operation is what a route does, in terms of an event.
type operation struct {
	verb     string // empty: the HTTP method
	kind     string // of the resource; empty: from the path
	sub      string // subresource
	resource bool
}

// apiPrefix starts the paths that are not in Kuma's API.
const apiPrefix = "/" + "v1/"

// operationOf derives the operation from the method, path, and kind of a route.
func operationOf(x Route) operation {
	op := operation{kind: x.Kind, resource: x.Kind != "" || strings.Contains(x.Pattern, "{plural}")}
	switch x.Pattern {
	case "/v1/apply", "/v1/records":
		return operation{verb: audit.VerbPatch, resource: true}
	case "/v1/rollback", "/v1/conflicts/restore":
		return operation{verb: audit.VerbUpdate, resource: true}
	case "/v1/events":
		return operation{verb: audit.VerbWatch}
	case "/v1/wait":
		return operation{verb: audit.VerbWatch, resource: true}
	}
	if !op.resource {
		return op
	}
	switch {
	case x.Method == http.MethodPut:
		op.verb = audit.VerbUpdate
	case x.Method == http.MethodDelete:
		op.verb = audit.VerbDelete
	case strings.Contains(x.Pattern, "{name}"):
		op.verb = audit.VerbGet
	default:
		op.verb = audit.VerbList
	}
	if _, sub, ok := strings.Cut(x.Pattern, "{name}/"); ok {
		op.sub = strings.TrimPrefix(sub, "_")
	} else if rest, ok := strings.CutPrefix(x.Pattern, apiPrefix); ok && x.Kind == "" {
		op.sub, _, _ = strings.Cut(rest, "/")
	}
	return op
}

// Routed records the route of a request.
func (x *Requests) Routed(r *http.Request, route Route) {
	rec, ok := r.Context().Value(recordKey{}).(*Record)
	if !ok {
		return
	}
	rec.op = operationOf(route)
	rec.probe = audit.Probe(route.Pattern)
	kind := rec.op.kind
	if kind == "" {
		kind = r.PathValue("plural")
	}
	if kind == "" || !rec.op.resource {
		return
	}
	d, ok := x.Registry.Lookup(kind)
	if !ok {
		rec.op.resource = false
		return
	}
	rec.about(d, resource.Key{Kind: d.Kind, Mesh: r.PathValue("mesh"), Name: r.PathValue("name")})
	rec.object.Subresource = rec.op.sub
	// The config of a proxy contains names, addresses, and certificates of all reachable services.
	rec.sensitive = rec.sensitive || rec.op.sub == "config"
	if rec.op.verb == audit.VerbUpdate &&
		!x.Exists(resource.Key{Kind: d.Kind, Mesh: rec.object.Mesh, Name: rec.object.Name}) {
		rec.op.verb = audit.VerbCreate
	}
}

// about records the resource of a request.
func (rec *Record) about(d resource.Descriptor, k resource.Key) {
	rec.object = &audit.ObjectRef{Resource: d.Plural, Mesh: k.Mesh, Name: k.Name, APIGroup: audit.APIGroup,
		APIVersion: audit.APIVersion}
	rec.sensitive = rec.sensitive || secret.HeldBy(d.New())
}

// About records the resource that a body names.
func (x *Requests) About(r *http.Request, k resource.Key) {
	if d, ok := x.Registry.Lookup(k.Kind); ok {
		Of(r).about(d, k)
	}
}

// Writes records the resources that a request writes.
func (x *Requests) Writes(r *http.Request, rs []*resource.Resource, dry bool) {
	rec := Of(r)
	rec.resources, rec.dry = rs, dry
	if len(rs) == 1 {
		x.About(r, rs[0].Key)
	}
	for _, res := range rs {
		rec.sensitive = rec.sensitive || res.HasSecrets || secret.HeldBy(res.Spec)
	}
}

// Identified records the sender.
func (rec *Record) Identified(p access.Peer) { rec.peer = p }

// Decided records that the request was authorized or denied.
func (rec *Record) Decided() { rec.decided = true }

// Panicked records an internal error of the handler.
func (rec *Record) Panicked() { rec.panicked = true }

// SignedBy records the signer of a record.
func (rec *Record) SignedBy(name string) {
	if !slices.Contains(rec.signers, name) {
		rec.signers = append(rec.signers, name)
		slices.Sort(rec.signers)
	}
}

// Wrote records the stored changes.
func (rec *Record) Wrote(changes ...api.Change) {
	rec.stored, rec.changes = true, changes
	created := true
	for _, c := range changes {
		created = created && c.Action == "created"
	}
	if created {
		rec.op.verb = audit.VerbCreate
	} else if rec.op.verb == audit.VerbCreate {
		rec.op.verb = audit.VerbUpdate
	}
}

// level returns how much of a request is logged.
func (rec *Record) level() audit.Level {
	return rec.profile.Level(audit.Request{Verb: rec.op.verb, Resource: rec.op.resource, Sensitive: rec.sensitive,
		Probe: rec.probe && !rec.panicked && (rec.problem == nil || rec.problem.Status == http.StatusServiceUnavailable)})
}

// Handler returns a handler that records one event for each request after its answer.
func (x *Requests) Handler(next http.Handler) http.Handler {
	if x.Log == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		profile := x.Log.Profile()
		if profile == audit.ProfileNone {
			next.ServeHTTP(w, r)
			return
		}
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		rec := &Record{profile: profile, id: audit.ID(id), received: time.Now(), peer: sender.Of(r)}
		w.Header().Set("Audit-Id", rec.id)
		answer := &recorder{ResponseWriter: w, rec: rec}
		r = r.WithContext(context.WithValue(r.Context(), recordKey{}, rec))
		defer x.answered(answer, r)
		next.ServeHTTP(answer, r)
	})
}

// answered records the event of a request, and then sends a delayed answer.
func (x *Requests) answered(a *recorder, r *http.Request) {
	defer a.send()
	rec := a.rec
	level := rec.level()
	if level == audit.LevelNone {
		return
	}
	suppressed := 0
	if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden || a.status == http.StatusTooManyRequests {
		var ok bool
		if suppressed, ok = x.refusals.Allow(rec.peer.Owner(), writing(r), rec.received); !ok {
			x.Log.Suppressed()
			return
		}
	}
	e := x.event(rec, r, audit.StageResponseComplete, level)
	if rec.panicked {
		e.Stage = audit.StagePanic
	}
	if suppressed > 0 {
		e.Annotate(audit.AnnotationOmitted, decimal(suppressed))
	}
	e.Status = &audit.Status{Code: a.code()}
	if p := rec.problem; p != nil {
		e.Status.Status, e.Status.Message = "Failure", p.Title
		e.Status.Reason = p.Type[strings.LastIndexByte(p.Type, '/')+1:]
		if p.Detail != "" {
			e.Status.Message += ": " + p.Detail
		}
	}
	if level == audit.LevelRequestResponse {
		x.bodies(e, a)
	}
	if !rec.stored {
		x.Log.Record(e)
		return
	}
	if err := x.Log.Store(e); err != nil {
		x.Failed.Error("api: a change was stored, but its audit event is not in the file yet", "auditID", rec.id, "error",
			err)
	}
}

// writing reports whether a request may change something, by its method.
func writing(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// Started records the event of a request that is about to wait.
func (x *Requests) Started(r *http.Request) {
	rec, ok := r.Context().Value(recordKey{}).(*Record)
	if !ok {
		return
	}
	e := x.event(rec, r, audit.StageResponseStarted, audit.LevelMetadata)
	e.Status = &audit.Status{Code: http.StatusOK}
	x.Log.Record(e)
}

// event returns an event with the data of a record.
func (x *Requests) event(rec *Record, r *http.Request, stage string, level audit.Level) *audit.Event {
	e := &audit.Event{Level: level, ID: rec.id, Stage: stage, RequestURI: r.URL.RequestURI(), Verb: rec.op.verb,
		User:      x.accounts.User(&rec.peer),
		UserAgent: r.UserAgent(), Object: rec.object, Received: rec.received, At: time.Now()}
	if e.Verb == "" {
		e.Verb = audit.Method(r.Method)
	}
	if host := addressOf(&rec.peer); host != "" {
		e.SourceIPs = []string{host}
	}
	if rec.decided {
		if p := rec.problem; p != nil && p.Type == api.ProblemDenied {
			e.Annotate(audit.AnnotationDecision, "forbid")
			e.Annotate(audit.AnnotationReason, p.Detail)
		} else {
			e.Annotate(audit.AnnotationDecision, "allow")
			e.Annotate(audit.AnnotationReason, x.reason(&rec.peer))
		}
	}
	if rec.dry {
		e.Annotate(audit.AnnotationDryRun, "true")
	}
	if len(rec.resources) > 1 {
		e.Annotate(audit.AnnotationResources, enumerate(rec.resources, func(res *resource.Resource) string {
			return res.Key.String()
		}))
	}
	if len(rec.signers) > 0 {
		e.Annotate(audit.AnnotationSigned, strings.Join(rec.signers, ", "))
	}
	if len(rec.changes) > 0 {
		e.Annotate(audit.AnnotationChanges, enumerate(rec.changes, func(c api.Change) string {
			// #nosec G115 -- revisions are below 2^63
			return c.Action + " " + (resource.Key{Kind: c.Type, Mesh: c.Mesh, Name: c.Name}).String() + "@" +
				decimal(int(c.Revision))
		}))
	}
	return e
}

// maxEnumerated bounds the items of an annotation.
const maxEnumerated = 50

func enumerate[T any](list []T, text func(T) string) string {
	var b strings.Builder
	for i, x := range list {
		if i == maxEnumerated {
			b.WriteString(" and " + decimal(len(list)-i) + " more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(text(x))
	}
	return b.String()
}

// bodies adds the bodies of request and answer to an event. It omits bodies that could not be read
// as resources, because they may contain secrets. If a body contains a redacted secret, the level
// becomes Metadata.
func (x *Requests) bodies(e *audit.Event, a *recorder) {
	rec := a.rec
	switch {
	case len(rec.resources) > 0:
		e.Request, e.RequestBytes = auditlog.Documents(rec.resources)
	case audit.Writes(rec.op.verb) && rec.op.verb != audit.VerbDelete:
		e.Level, e.Response = audit.LevelMetadata, nil
		e.Annotate(audit.AnnotationNoBody, "the body could not be read as resources")
		return
	}
	if media := a.Header().Get("Content-Type"); media == "application/json" || media == "application/problem+json" {
		e.Response = a.body.Bytes()
		if a.length > a.body.Len() {
			e.ResponseBytes = a.length
		}
	}
	if redacted(e.Request) || redacted(e.Response) {
		e.Level, e.Request, e.Response = audit.LevelMetadata, nil, nil
		e.Annotate(audit.AnnotationNoBody, "the body contains secrets")
	}
}

func redacted(doc []byte) bool {
	return bytes.Contains(doc, []byte(strings.TrimSuffix(secret.Redacted, "]"))) ||
		bytes.Contains(doc, []byte("PRIVATE KEY"))
}
