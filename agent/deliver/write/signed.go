package write

import (
	"encoding/base64"
	"fmt"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// statusInvalid is the HTTP status of an invalid request.
const statusInvalid = 400

func invalid(field, reason string) *api.Error {
	e := api.NewError(statusInvalid, api.ProblemInvalid, "Invalid request", "%s: %s", field, reason)
	e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Field: field, Reason: reason})
	return e
}

// Unsignable returns why an operator cannot sign a record, or "".
func (w *Writer) Unsignable(k resource.Key) string {
	if store.Reserved(k.Kind) {
		if k.Mesh != "" || k.Name == "" {
			return fmt.Sprintf("%s is not the key of a %s, which has a name and no mesh", k, k.Kind)
		}
		return ""
	}
	d, known := w.Registry.Lookup(k.Kind)
	switch {
	case !known || d.Kind != k.Kind:
		return fmt.Sprintf("%q is not a kind", k.Kind)
	case k.Name == "" || (k.Mesh == "") != (d.Scope == resource.ScopeGlobal):
		return fmt.Sprintf("%s is not the key of a %s: its name or mesh is wrong", k, k.Kind)
	case !w.Store.Shared(k.Kind):
		return k.Kind + " belongs to a node, which signs it itself; apply it without a key"
	}
	return ""
}

// Signed returns the write of signed versions in base64. It checks signatures, and validates the
// resources.
func (w *Writer) Signed(list []string) (*Request, *api.Error) {
	if n := len(list); n == 0 || n > api.MaxRecords {
		return nil, invalid("records", fmt.Sprintf("has %d entries; give 1 to %d", n, api.MaxRecords))
	}
	q := &Request{Signed: map[resource.Key]*engine.Record{}}
	for i, text := range list {
		field := fmt.Sprintf("records[%d]", i)
		v, err := verified(text)
		if err != nil {
			return nil, invalid(field, err.Error())
		}
		k := resource.Key(v.Key)
		reason := w.Unsignable(k)
		switch {
		case reason != "":
		case v.Signer() == sign.ID{}:
			reason = k.String() + " has no signature; sign it, or apply it without a key"
		case q.Signed[k] != nil:
			reason = k.String() + " is in the request twice; keep one"
		}
		if reason != "" {
			return nil, invalid(field, reason)
		}
		if q.Signed[k] = v; store.Reserved(k.Kind) {
			q.Reserved = append(q.Reserved, v)
		} else if v.Deleted {
			q.Delete = append(q.Delete, k)
		} else {
			res, e := w.signedResource(field, v)
			if e != nil {
				return nil, e
			}
			q.Put = append(q.Put, res)
		}
	}
	if len(q.Delete) > 1 || min(len(q.Put), len(q.Delete)) > 0 ||
		len(q.Reserved) > 0 && len(q.Put)+len(q.Delete) > 0 {
		return nil, invalid("records", fmt.Sprintf("stores %d resources, deletes %d, and has %d other records; send "+
			"resources to store, or one deletion, or other records", len(q.Put), len(q.Delete), len(q.Reserved)))
	}
	return q, nil
}

// verified decodes a version, and checks its signature.
func verified(text string) (*engine.Record, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	v, err := engine.DecodeRecord(b)
	if err != nil {
		return nil, err
	}
	return v, v.Verify()
}

// signedResource returns the resource in a version.
func (w *Writer) signedResource(field string, v *engine.Record) (*resource.Resource, *api.Error) {
	if v.MediaType != store.MediaType {
		return nil, invalid(field, fmt.Sprintf("%s has the media type %q; %s is required", v.Key, v.MediaType,
			store.MediaType))
	}
	rs, faults := w.Registry.Decode("", v.Body)
	switch {
	case len(faults) > 0:
		e := api.NewError(statusInvalid, api.ProblemDocument, "Invalid resource",
			"nothing was stored; fix the listed fields, and sign it again")
		for _, f := range faults {
			e.InvalidParameters = append(e.InvalidParameters, api.InvalidParameter{Field: f.Field, Reason: f.String()})
		}
		return nil, e
	case len(rs) != 1:
		return nil, invalid(field, fmt.Sprintf("%s has %d documents; one is required", v.Key, len(rs)))
	case rs[0].Key != resource.Key(v.Key):
		return nil, invalid(field, fmt.Sprintf("%s contains %s; sign a record for it", v.Key, rs[0].Key))
	}
	return rs[0], nil
}
