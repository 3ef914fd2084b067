package httpapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"

	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/audited"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// permission returns the key that a permission for a record refers to. Records that are no
// resources need permissions for the whole agent.
func permission(k resource.Key) resource.Key {
	if store.Reserved(k.Kind) {
		return resource.Key{Kind: access.KindAgent}
	}
	return k
}

// versions is POST /v1/versions. It requires the permission to read or write each record.
func (s *Server) versions(w http.ResponseWriter, r *http.Request) *api.Error {
	body, e := httpjson.Body(r)
	if e != nil {
		return e
	}
	var q api.KeyVersions
	if e := httpjson.Decode(body, &q); e != nil {
		return e
	}
	if n := len(q.Items); n == 0 || n > api.MaxRecords {
		return httpjson.InvalidField("items", "has %d entries; give 1 to %d", n, api.MaxRecords)
	}
	keys := make([]resource.Key, len(q.Items))
	for i, ref := range q.Items {
		keys[i] = ref.Key()
		if reason := s.writer.Unsignable(keys[i]); reason != "" {
			return httpjson.InvalidField(fmt.Sprintf("items[%d]", i), "%s", reason)
		}
		refused := s.can(r, access.VerbUpdate, permission(keys[i]))
		for _, verb := range []string{access.VerbCreate, access.VerbDelete, access.VerbGet} {
			if refused != nil && s.may(r, verb, permission(keys[i])) {
				refused = nil
			}
		}
		if refused != nil {
			return refused
		}
	}
	drafts, of, err := s.opts.Store.Drafts(keys)
	if err != nil {
		return api.NewError(http.StatusConflict, api.ProblemInvalid, "No version", "%s", err.Error())
	}
	out := api.NextVersions{Cluster: of.Cluster, Node: of.Name, NodeID: of.Node.String(),
		Items: make([]api.NextVersion, len(keys))}
	for i, d := range drafts {
		v := api.NextVersion{Ref: api.RefOf(keys[i]), HLC: fmt.Sprintf("%016x", uint64(d.HLC)),
			Lineage: base64.StdEncoding.EncodeToString(d.Pack())}
		if c := d.Current; c != nil && !c.Deleted {
			sum := sha256.Sum256(c.Body)
			v.Exists, v.Content = true, hex.EncodeToString(sum[:])
			if c.Signer() != (sign.ID{}) {
				v.Key = c.Signer().String()
			}
		}
		out.Items[i] = v
	}
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// records is POST /v1/records: it stores versions that the sender, or another operator, has signed.
// The sender needs the same permissions as for a write without a signature.
func (s *Server) records(w http.ResponseWriter, r *http.Request) *api.Error {
	nothing := s.mayWriteNothing(w, r)
	body, e := httpjson.Body(r)
	if e != nil {
		return cmp.Or(nothing, e)
	}
	release, e := s.bulky(r, body)
	if e != nil {
		return e
	}
	defer release()
	var list api.SignedRecords
	if e := httpjson.Decode(body, &list); e != nil {
		return cmp.Or(nothing, e)
	}
	q, e := s.writer.Signed(list.Records)
	if e != nil {
		return cmp.Or(nothing, e)
	}
	if e := s.maySign(r, q); e != nil {
		return e
	}
	by := s.authors()
	for _, v := range q.Signed {
		audited.Of(r).SignedBy(by(v.Author, v.Signer()).String())
	}
	out, e := s.write(r, *q)
	if e != nil {
		return e
	}
	longOf(r.Context()).prolong()
	httpjson.Write(w, http.StatusOK, out)
	return nil
}

// maySign refuses signed versions unless the sender may delete or write them. [Server.mayWrite]
// checks the resources to store.
func (s *Server) maySign(r *http.Request, q *write.Request) *api.Error {
	for _, v := range q.Reserved {
		if e := s.can(r, access.VerbUpdate, permission(resource.Key(v.Key))); e != nil {
			return e
		}
	}
	for _, k := range q.Delete {
		if e := s.can(r, access.VerbDelete, k); e != nil {
			return e
		}
	}
	return nil
}
