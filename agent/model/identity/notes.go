package identity

import (
	"fmt"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Notes says what an agent would have to say about the backends of a mesh in which mutual TLS is
// enabled, as far as that shows in the Mesh alone: not about files, nor about authorities that
// agents have made.
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

// backendAt names a backend of a mesh.
func backendAt(m *resource.MTLS, i int) string {
	return fmt.Sprintf("mtls.backends[%d] (%s)", i, m.Backends[i].Name)
}

// unusable is a warning about a backend that does not sign.
func unusable(at string, err error) string {
	return fmt.Sprintf("%s: %v: what it has signed is not trusted", at, err)
}

// inTime fails for an authority that is not valid at a time.
func inTime(p *pair, now time.Time) error {
	switch {
	case !now.Before(p.cert.NotAfter):
		return fmt.Errorf("conf.cert: the certificate has expired at %s: give another one",
			p.cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(p.cert.NotBefore):
		return fmt.Errorf("conf.cert: the certificate is valid from %s on: set the clock, or give another one",
			p.cert.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// ending is a warning about an authority that is valid for the last fifth of its time.
func ending(p *pair) string {
	return fmt.Sprintf("conf.cert: the certificate of the authority expires at %s: list a backend with another "+
		"one in time", p.cert.NotAfter.UTC().Format(time.RFC3339))
}
