package httpapi

import (
	"net/http"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Trust is the trust of this node in the data of the pool.
type Trust interface {
	Trust() api.Trust
	// TrustRecords returns the records that a key signed, "unsigned" ones, or all with "".
	TrustRecords(signer string) []api.TrustRecord
	// AdoptTrust makes a trust file the first one of this node.
	AdoptTrust(file []byte) error
}

// trust is GET /v1/trust.
func (s *Server) trust(w http.ResponseWriter, _ *http.Request) *api.Error {
	if s.opts.Pool == nil {
		return noPool()
	}
	httpjson.Write(w, http.StatusOK, s.opts.Pool.Trust())
	return nil
}

// trustRecords is GET /v1/trust/records?signer=. It omits records that the sender may not read and
// update. Records with secrets have no encoded form.
func (s *Server) trustRecords(w http.ResponseWriter, r *http.Request) *api.Error {
	signer := r.URL.Query().Get("signer")
	if _, err := sign.ParseID(signer); err != nil && signer != "" && signer != "unsigned" {
		return httpjson.InvalidQuery("signer", signer,
			"give a fingerprint, as nearside keys list prints it, or unsigned")
	}
	if s.opts.Pool == nil {
		return noPool()
	}
	out := api.TrustRecords{Items: []api.TrustRecord{}}
	for _, x := range s.opts.Pool.TrustRecords(signer) {
		if s.may(r, access.VerbGet, x.Key()) && s.may(r, access.VerbUpdate, x.Key()) {
			out.Items = append(out.Items, x)
		}
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// anchorTrust is POST /v1/trust/anchor.
func (s *Server) anchorTrust(w http.ResponseWriter, r *http.Request) *api.Error {
	var q api.TrustAnchor
	if e := poolQuestion(s, w, r, &q); e != nil {
		return e
	}
	if err := s.opts.Pool.AdoptTrust([]byte(q.File)); err != nil {
		return httpjson.InvalidField("file", "%s", err.Error())
	}
	httpjson.Write(w, http.StatusOK, struct{}{})
	return nil
}
