package httpapi

import (
	"net/http"
	"strconv"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/audited"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// newWriter returns the writer for API writes.
func (s *Server) newWriter() *write.Writer {
	o := s.opts.Options
	o.Rendered, o.Comparing, o.Log = &s.rendered, s.comparing, s.log
	if s.opts.Audit != nil {
		o.Auditable = s.opts.Audit.Ready
	}
	return write.New(o)
}

// target returns the resource of a write, and whether it is a dry run.
func (s *Server) target(r *http.Request) (a address, dry bool, e *api.Error) {
	if a, e = s.address(r); e != nil {
		return
	}
	if _, known := s.opts.Registry.Lookup(a.key.Kind); !known {
		return a, false, api.NewNotFound("the agent does not support the kind %s", a.key.Kind)
	}
	dry, e = httpjson.Bool(r, "dryRun")
	return
}

func (s *Server) put(w http.ResponseWriter, r *http.Request) *api.Error {
	a, dry, e := s.target(r)
	if e != nil {
		return e
	}
	body, e := httpjson.Body(r)
	if e != nil {
		return e
	}
	res, kept, e := s.decodeOne(a.key, body)
	if e != nil {
		return e
	}
	out, e := s.write(r, write.Request{Put: []*resource.Resource{res}, Kept: kept, DryRun: dry})
	if e != nil {
		return e
	}
	status := http.StatusOK
	if out.Changes[0].Action == api.ActionCreated {
		status = http.StatusCreated
		w.Header().Set("Location", r.URL.EscapedPath())
	}
	if rec, ok := s.opts.Store.Snapshot().Get(a.key); ok && !dry && rec.Revision == out.Changes[0].Revision {
		w.Header().Set("ETag", etag(rec))
	}
	httpjson.Write(w, status, out)
	return nil
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) *api.Error {
	a, dry, e := s.target(r)
	if e != nil {
		return e
	}
	out, e := s.write(r, write.Request{Delete: []resource.Key{a.key}, DryRun: dry})
	if e != nil {
		return e
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// write performs a write with the permissions of the sender and the preconditions of the request.
func (s *Server) write(r *http.Request, q write.Request) (*api.Written, *api.Error) {
	s.audit.Writes(r, q.Put, q.DryRun)
	p := sender.Of(r)
	q.Author, q.Waiting = p.Account(), longOf(r.Context())
	q.If = func(rec store.Record, have bool) *api.Error { return preconditions(r, rec, have) }
	q.MayPut = func(snap *store.Snapshot, rs []*resource.Resource) *api.Error {
		return s.mayPut(r, snap, rs)
	}
	q.MayGet = func(k resource.Key) bool { return s.may(r, access.VerbGet, k) }
	if e := s.mayPreview(r, &change.Question{Put: q.Put, Delete: q.Delete}); e != nil {
		q.Hidden = e.Detail
	}
	out, e := s.writer.Write(r.Context(), &q)
	if e == nil && !q.DryRun {
		audited.Of(r).Wrote(out.Changes...)
	}
	return out, e
}

// decodeOne decodes a body with exactly the resource of a key.
func (s *Server) decodeOne(want resource.Key, body []byte) (*resource.Resource, keptSecrets, *api.Error) {
	rs, kept, faults := s.decode(body)
	if len(faults) > 0 {
		return nil, nil, invalidDocument(faults, len(rs)+len(faults) > 1)
	}
	if len(rs) != 1 {
		return nil, nil, api.NewInvalid("the body has " + strconv.Itoa(len(rs)) +
			" documents; send one, or several to /v1/apply")
	}
	var wrong []api.InvalidParameter
	for _, f := range []struct{ field, have, want string }{
		{"type", rs[0].Kind, want.Kind}, {"mesh", rs[0].Mesh, want.Mesh}, {"name", rs[0].Name, want.Name},
	} {
		if f.have != f.want {
			wrong = append(wrong, api.InvalidParameter{Field: f.field,
				Reason: strconv.Quote(f.have) + " does not match the path, which has " + strconv.Quote(f.want)})
		}
	}
	if len(wrong) > 0 {
		return nil, nil, api.NewInvalid("the document is not the resource in the path", wrong...)
	}
	return rs[0], kept, nil
}

// invalidDocument answers with all faults. If the request has several documents, each reason starts
// with its document.
func invalidDocument(faults resource.Faults, many bool) *api.Error {
	e := api.NewError(http.StatusBadRequest, api.ProblemDocument, "Invalid resource",
		"nothing was stored; fix the listed fields")
	for _, f := range faults {
		field := f.Field
		f.Field = ""
		if !many {
			f.Document, f.Resource = 0, ""
		}
		e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Field: field, Reason: f.String()})
	}
	return e
}

// preconditions checks If-Match and If-None-Match (RFC 9110, 13.1).
func preconditions(r *http.Request, rec store.Record, have bool) *api.Error {
	if m := r.Header.Get("If-Match"); m != "" {
		if !have {
			return api.NewError(http.StatusPreconditionFailed, api.ProblemStale, "Stale revision",
				"If-Match requires a resource at %q, but there is none", r.URL.Path)
		}
		if tag := etag(rec); !tagListed(m, tag) {
			return api.NewError(http.StatusPreconditionFailed, api.ProblemStale, "Stale revision",
				"%s has the ETag %s, but If-Match has %s: the resource was changed; read it again and repeat the change",
				rec.Key, tag, m)
		}
	}
	if m := r.Header.Get("If-None-Match"); m != "" && have && tagListed(m, etag(rec)) {
		return api.NewError(http.StatusPreconditionFailed, api.ProblemExists, "Already exists",
			"%s already exists at revision %d, but If-None-Match requires that it does not", rec.Key, rec.Revision)
	}
	return nil
}
