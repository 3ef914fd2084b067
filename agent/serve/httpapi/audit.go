package httpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/http"
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

// Auditor is the audit log. It is safe for concurrent use.
type Auditor interface {
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

type recordKey struct{}

// record collects the data for the audit event of a request.
type record struct {
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

// recordOf returns the record of a request. Without an audit log, it returns an unused record.
func recordOf(r *http.Request) *record {
	if rec, ok := r.Context().Value(recordKey{}).(*record); ok {
		return rec
	}
	return new(record)
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

// operationOf derives the operation from the method, path, and need of a route.
func operationOf(x route) operation {
	op := operation{kind: x.need.kind, resource: x.need.kind != "" || strings.Contains(x.pattern, "{plural}")}
	switch x.pattern {
	case "/v1/apply", "/v1/records":
		return operation{verb: audit.VerbPatch, resource: true}
	case "/v1/rollback", "/v1/conflicts/restore":
		return operation{verb: audit.VerbUpdate, resource: true}
	case "/v1/wait":
		return operation{verb: audit.VerbWatch, resource: true}
	}
	if !op.resource {
		return op
	}
	switch {
	case x.method == http.MethodPut:
		op.verb = audit.VerbUpdate
	case x.method == http.MethodDelete:
		op.verb = audit.VerbDelete
	case strings.Contains(x.pattern, "{name}"):
		op.verb = audit.VerbGet
	default:
		op.verb = audit.VerbList
	}
	if _, sub, ok := strings.Cut(x.pattern, "{name}/"); ok {
		op.sub = strings.TrimPrefix(sub, "_")
	} else if rest, ok := strings.CutPrefix(x.pattern, apiPrefix); ok && x.need.kind == "" {
		op.sub, _, _ = strings.Cut(rest, "/")
	}
	return op
}

// routed records the route of a request.
func (s *Server) routed(r *http.Request, x route) {
	rec, ok := r.Context().Value(recordKey{}).(*record)
	if !ok {
		return
	}
	rec.op = operationOf(x)
	rec.probe = audit.Probe(x.pattern)
	kind := rec.op.kind
	if kind == "" {
		kind = r.PathValue("plural")
	}
	if kind == "" || !rec.op.resource {
		return
	}
	d, ok := s.opts.Registry.Lookup(kind)
	if !ok {
		rec.op.resource = false
		return
	}
	rec.about(d, resource.Key{Kind: d.Kind, Mesh: r.PathValue("mesh"), Name: r.PathValue("name")})
	rec.object.Subresource = rec.op.sub
	// The config of a proxy contains names, addresses, and certificates of all reachable services.
	rec.sensitive = rec.sensitive || rec.op.sub == "config"
	if rec.op.verb == audit.VerbUpdate &&
		!s.exists(resource.Key{Kind: d.Kind, Mesh: rec.object.Mesh, Name: rec.object.Name}) {
		rec.op.verb = audit.VerbCreate
	}
}

// about records the resource of a request.
func (rec *record) about(d resource.Descriptor, k resource.Key) {
	rec.object = &audit.ObjectRef{Resource: d.Plural, Mesh: k.Mesh, Name: k.Name, APIGroup: audit.APIGroup,
		APIVersion: audit.APIVersion}
	rec.sensitive = rec.sensitive || secret.HeldBy(d.New())
}

// aboutKey records the resource that a body names.
func (s *Server) aboutKey(r *http.Request, k resource.Key) {
	if d, ok := s.opts.Registry.Lookup(k.Kind); ok {
		recordOf(r).about(d, k)
	}
}

// writes records the resources that a request writes.
func (s *Server) writes(r *http.Request, rs []*resource.Resource, dry bool) {
	rec := recordOf(r)
	rec.resources, rec.dry = rs, dry
	if len(rs) == 1 {
		s.aboutKey(r, rs[0].Key)
	}
	for _, x := range rs {
		rec.sensitive = rec.sensitive || x.HasSecrets || secret.HeldBy(x.Spec)
	}
}

// wrote records the stored changes.
func (rec *record) wrote(changes ...api.Change) {
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
func (rec *record) level() audit.Level {
	return rec.profile.Level(audit.Request{Verb: rec.op.verb, Resource: rec.op.resource, Sensitive: rec.sensitive,
		Probe: rec.probe && !rec.panicked && (rec.problem == nil || rec.problem.Status == http.StatusServiceUnavailable)})
}

// audited records one event for each request after its answer.
func (s *Server) audited(next http.Handler) http.Handler {
	if s.opts.Audit == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		profile := s.opts.Audit.Profile()
		if profile == audit.ProfileNone {
			next.ServeHTTP(w, r)
			return
		}
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		rec := &record{profile: profile, id: audit.ID(id), received: time.Now(), peer: sender.Of(r)}
		w.Header().Set("Audit-Id", rec.id)
		answer := &recorder{ResponseWriter: w, rec: rec}
		r = r.WithContext(context.WithValue(r.Context(), recordKey{}, rec))
		defer s.answered(answer, r)
		next.ServeHTTP(answer, r)
	})
}

// answered records the event of a request, and then sends a delayed answer.
func (s *Server) answered(a *recorder, r *http.Request) {
	defer a.send()
	rec := a.rec
	level := rec.level()
	if level == audit.LevelNone {
		return
	}
	suppressed := 0
	if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden || a.status == http.StatusTooManyRequests {
		var ok bool
		if suppressed, ok = s.refusalEvents.Allow(rec.peer.Owner(), writing(r), rec.received); !ok {
			s.opts.Audit.Suppressed()
			return
		}
	}
	e := s.event(rec, r, audit.StageResponseComplete, level)
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
		s.bodies(e, a)
	}
	if !rec.stored {
		s.opts.Audit.Record(e)
		return
	}
	if err := s.opts.Audit.Store(e); err != nil {
		s.log.Error("api: a change was stored, but its audit event is not in the file yet", "auditID", rec.id, "error", err)
	}
}

// writing reports whether a request may change something, by its method.
func writing(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// started records the event of a request that is about to wait.
func (s *Server) started(r *http.Request) {
	rec, ok := r.Context().Value(recordKey{}).(*record)
	if !ok {
		return
	}
	e := s.event(rec, r, audit.StageResponseStarted, audit.LevelMetadata)
	e.Status = &audit.Status{Code: http.StatusOK}
	s.opts.Audit.Record(e)
}

// event returns an event with the data of a record.
func (s *Server) event(rec *record, r *http.Request, stage string, level audit.Level) *audit.Event {
	e := &audit.Event{Level: level, ID: rec.id, Stage: stage, RequestURI: r.URL.RequestURI(), Verb: rec.op.verb,
		User:      s.accounts.User(&rec.peer),
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
			e.Annotate(audit.AnnotationReason, s.reason(&rec.peer))
		}
	}
	if rec.dry {
		e.Annotate(audit.AnnotationDryRun, "true")
	}
	if len(rec.resources) > 1 {
		e.Annotate(audit.AnnotationResources, enumerate(rec.resources, func(x *resource.Resource) string {
			return x.Key.String()
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
func (s *Server) bodies(e *audit.Event, a *recorder) {
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
