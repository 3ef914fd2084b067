package proxies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// proxyText writes the sync status of a proxy.
func proxyText(env *command.Env, p *api.Proxy) error {
	text.Printf(env.Stdout, "%s/%s: %s", cmp.Or(p.Mesh, p.Type.Kind()), p.Name, p.State)
	if p.Reason != "" {
		text.Printf(env.Stdout, ": %s", p.Reason)
	}
	text.Println(env.Stdout)
	for _, x := range p.Problems {
		text.Printf(env.Stdout, "%s: %s\n", x.Severity, x.Reason)
	}
	for _, c := range p.Clients {
		text.Printf(env.Stdout, "\nnode %s: %s %s, %s, %s ago, %s\n", c.NodeID, c.UserAgent, c.Version, c.Peer,
			text.Age(c.ConnectedAt), text.Counted(c.Streams, "stream"))
		t := text.NewTable(env.Stdout, "TYPE", "RESOURCES", "SENT", "ACKED", "REJECTED")
		for _, x := range c.Types {
			rejected := ""
			if x.NACK != nil {
				rejected = x.NACK.Version + ": " + x.NACK.Reason
			}
			t.Row(text.ShortType(x.TypeURL), fmt.Sprint(x.Resources), x.SentVersion, x.AckedVersion, rejected)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, x := range c.Types {
			for _, h := range x.Held {
				text.Printf(env.Stdout, "withheld: %s: %s\n", h.Name, text.OneLine(h.Reason))
				text.Blame(env.Stdout, "  because of ", h.Policies)
			}
		}
	}
	if n := p.RefusedConnections; n != nil && *n > 0 {
		text.Printf(env.Stdout, "\nrefused: %d connections to destinations outside of the mesh since Envoy started; "+
			"see nearside passthrough suggest --dataplane %s\n", *n, p.Name)
	}
	if w, r := p.LogWritesFailed, p.LogReopensFailed; w != nil && r != nil && *w+*r > 0 {
		text.Printf(env.Stdout, "\nlost: %d writes to access logs and %d attempts to open them anew have failed since Envoy "+
			"started, each with the loss of some lines\n", *w, *r)
	}
	return inForce(env, p.InForce)
}

// inForce writes what policies let a proxy do as a whole: a line for each kind, and a table where
// it permits one by one.
func inForce(env *command.Env, list []api.InForce) error {
	for i := range list {
		f := &list[i]
		text.Printf(env.Stdout, "\n%s: %s, by %s\n", f.Type, f.Mode, text.WrittenAt(f.Decides))
		if len(f.Permits) == 0 {
			continue
		}
		t := text.NewTable(env.Stdout, "PROTOCOL", "VALUE", "PORT", "REACHES", "FAMILY", "CLUSTER", "LOG", "BY")
		for _, p := range f.Permits {
			port := "*"
			if p.Port != 0 {
				port = fmt.Sprint(p.Port)
			}
			family := "IPv6"
			switch {
			case p.IPv4 && p.IPv6:
				family = "both"
			case p.IPv4:
				family = "IPv4"
			}
			var logs []string
			for _, l := range p.AccessLogs {
				if !slices.Contains(logs, l.Sink) {
					logs = append(logs, l.Sink)
				}
			}
			by := text.Each(p.Policies, text.WrittenAt)
			t.Row(p.Protocol, p.Value, port, p.Reaches, family, p.Cluster, strings.Join(logs, ", "), strings.Join(by, ", "))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}
