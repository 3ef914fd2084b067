package httpapi

import (
	"crypto/tls"
	"fmt"

	"github.com/nearside-mesh/nearside/agent/base/workers"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// keptSecrets are the revisions of resources whose stored secrets a request keeps, because the
// request has redaction marks instead.
type keptSecrets map[resource.Key]uint64

// decode decodes a stream of documents. Redaction marks keep the current secrets.
func (s *Server) decode(body []byte) ([]*resource.Resource, keptSecrets, resource.Faults) {
	snap, kept := s.opts.Store.Snapshot(), keptSecrets{}
	rs, faults := s.opts.Registry.On(workers.Spare(), workers.Each).
		DecodeOver(body, func(k resource.Key) *resource.Resource {
			rec, ok := snap.Get(k)
			if !ok {
				return nil
			}
			kept[k] = rec.Revision
			return rec.Resource
		})
	for _, r := range rs {
		if _, ok := kept[r.Key]; !ok {
			continue
		}
		rec, _ := snap.Get(r.Key)
		faults = append(faults, unpaired(r, rec.Resource)...)
	}
	return rs, kept, faults
}

// unpaired finds changed certificates that do not match their kept key. A sender may change the
// certificate of a key that it cannot see.
func unpaired(r, before *resource.Resource) resource.Faults {
	var out resource.Faults
	old := map[string]bool{}
	eachPair(before, func(_ string, cert *resource.DataSource, _ *resource.KeySource) { old[string(inline(cert))] = true })
	eachPair(r, func(field string, cert *resource.DataSource, key *resource.KeySource) {
		chain, private := inline(cert), inline(key.Source())
		if chain == nil || private == nil || old[string(chain)] {
			return
		}
		if _, err := tls.X509KeyPair(chain, private); err != nil {
			out = append(out, resource.Fault{Resource: r.Key.String(), Field: field,
				Reason: "the certificate does not match the stored key: give both, or a certificate of that key, in PEM"})
		}
	})
	return out
}

// eachPair calls f for each certificate of a resource and its key, with the field of the
// certificate.
func eachPair(r *resource.Resource, f func(field string, cert *resource.DataSource, key *resource.KeySource)) {
	switch spec := r.Spec.(type) {
	case *resource.Mesh:
		for i := 0; spec.MTLS != nil && i < len(spec.MTLS.Backends); i++ {
			if c := spec.MTLS.Backends[i].Conf; c != nil {
				f(fmt.Sprintf("mtls.backends[%d].conf.cert", i), c.Cert, c.Key)
			}
		}
	case *resource.ExternalService:
		if t := spec.Networking.TLS; t != nil {
			f("networking.tls.clientCert", t.ClientCert, t.ClientKey)
		}
	case *resource.MeshExternalService:
		if t := spec.TLS; t != nil && t.Verification != nil {
			f("spec.tls.verification.clientCert", t.Verification.ClientCert, t.Verification.ClientKey)
		}
	}
}

// inline returns the inline data of a source, or nil.
func inline(d *resource.DataSource) []byte {
	switch {
	case d == nil:
		return nil
	case len(d.Inline) > 0:
		return d.Inline
	case d.InlineString != "":
		return []byte(d.InlineString)
	}
	return nil
}
