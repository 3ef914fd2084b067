package identity

import (
	"fmt"
	"io"
)

// Types with keys print only a description, for every verb of fmt and so for slog. The methods have
// value receivers, so that pointers have them too. JSON forms are empty because no field is
// exported.

// Format prints the names in the certificate.
func (p pair) Format(f fmt.State, _ rune) {
	who := "no certificate"
	if p.cert != nil {
		who = fmt.Sprintf("the certificate of %s %v", p.cert.Subject, p.cert.URIs)
	}
	_, _ = io.WriteString(f, who)
}

// Format prints the backend.
func (a authority) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "an authority of the backend "+a.backend)
}

// Format prints the dataplane.
func (p proxy) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "the certificate of the dataplane "+p.mesh+"/"+p.name)
}
