package pods

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Checks reports pods that are not served. They do not affect the readiness of others. A nil Pods
// has no checks.
func (p *Pods) Checks() []api.Check {
	if p == nil {
		return nil
	}
	s := p.State()
	c := api.Check{Name: "pods", OK: true, Degraded: true}
	switch {
	case s.Broken != nil:
		c.Error, c.Reason = true, s.Broken.Error()
	case len(s.Refused) > 0:
		const most = 5
		shown := s.Refused[:min(len(s.Refused), most)]
		c.Error, c.Reason = true, "xds.pods: refused registrations: "+strings.Join(shown, "; ")
		if n := len(s.Refused) - len(shown) + s.More; n > 0 {
			c.Reason += plural.Form(n, "; and 1 more", "; and %d more")
		}
	default:
		c.Degraded, c.Reason = false, fmt.Sprintf("%s served over their own sockets", plural.Count(s.Served, "pod"))
	}
	return []api.Check{c}
}
