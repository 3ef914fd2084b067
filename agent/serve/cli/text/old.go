package text

import (
	"fmt"
	"io"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// OldProxy says until when a proxy may have connections that use previous filters, and why.
func OldProxy(p *api.OldProxy) string {
	out := fmt.Sprintf("%s/%s: until %s (drain time %s, %s)", p.Mesh, p.Name, Time(p.Until),
		p.DrainTime, p.Strategy)
	if p.Connections != nil {
		out += ", " + plural.Count(*p.Connections, "connection")
	}
	if p.Permission {
		out += "; an open TCP connection keeps its previous permission until then"
	}
	if p.DrainUnknown != "" {
		out += "; these are Envoy's defaults, because the Envoy does not report its own: " + OneLine(p.DrainUnknown)
	}
	if p.Reason != "" {
		out += "; " + OneLine(p.Reason)
	}
	return out
}

// statusOld prints the proxies with older connections.
func statusOld(w io.Writer, list []api.OldProxy) {
	const most = 5
	for i := range list {
		switch {
		case i == 0:
			Printf(w, "draining   older connections of %s may use previous filters\n", plural.Count(len(list), "proxy"))
		case i == most:
			Printf(w, "  and %s more\n", plural.Count(len(list)-most, "proxy"))
			return
		}
		Printf(w, "  %s\n", OldProxy(&list[i]))
	}
}
