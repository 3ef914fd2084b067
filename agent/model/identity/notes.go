package identity

import (
	"fmt"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Notes returns the warnings about the backends of a mesh with mutual TLS that follow from the Mesh
// itself. They do not cover files or authorities that agents have created.
func Notes(m *resource.MTLS, now time.Time) (out []string) {
	for i := range m.Backends {
		spec := &m.Backends[i]
		at := backendAt(m, i)
		if c := spec.Conf; spec.Type == resource.BackendProvided && c != nil && c.Cert != nil && c.Key != nil &&
			c.Cert.File == "" && c.Key.File == "" {
			p, err := providedPair(c)
			if err == nil {
				err = inTime(p, now)
			}
			switch {
			case err != nil && spec.Name == m.EnabledBackend:
				out = append(out, fmt.Sprintf("%s: %v", at, err))
			case err != nil:
				out = append(out, unusable(at, err))
			case !now.Before(rootRenewal(p.cert.NotBefore, p.cert.NotAfter)):
				out = append(out, at+": "+ending(p))
			}
		}
		if spec.Name == m.EnabledBackend {
			_, out = proxySpan(spec, at, out)
		}
	}
	return out
}

// backendAt returns the field path of a backend.
func backendAt(m *resource.MTLS, i int) string {
	return fmt.Sprintf("mtls.backends[%d] (%s)", i, m.Backends[i].Name)
}

// unusable returns the warning about a backend that cannot sign.
func unusable(at string, err error) string {
	return fmt.Sprintf("%s: %v: certificates signed by it are not trusted", at, err)
}

// inTime returns an error if an authority is not valid at a time.
func inTime(p *pair, now time.Time) error {
	switch {
	case !now.Before(p.cert.NotAfter):
		return fmt.Errorf("conf.cert: the certificate expired at %s: set another one",
			p.cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(p.cert.NotBefore):
		return fmt.Errorf("conf.cert: the certificate is not valid before %s: set the clock, or another certificate",
			p.cert.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// ending returns the warning about an authority in the last fifth of its lifetime.
func ending(p *pair) string {
	return fmt.Sprintf("conf.cert: the authority's certificate expires at %s: list a backend with another "+
		"one in time", p.cert.NotAfter.UTC().Format(time.RFC3339))
}
