package identity

import (
	"fmt"
	"io"
)

// What holds keys is written by fmt, whatever the verb, and so by slog, as what it is about. The
// methods stand on the values, so that pointers have them too; JSON forms have no fields, since
// none is exported.

// Format writes the names in the certificate.
func (p pair) Format(f fmt.State, _ rune) {
	who := "no certificate"
	if p.cert != nil {
		who = fmt.Sprintf("the certificate of %s %v", p.cert.Subject, p.cert.URIs)
	}
	_, _ = io.WriteString(f, who)
}

// Format writes the backend.
func (a authority) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "an authority of the backend "+a.backend)
}

// Format writes the dataplane.
func (p proxy) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "the certificate of the dataplane "+p.mesh+"/"+p.name)
}
