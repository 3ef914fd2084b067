package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/client"
)

// inForce writes what policies let a proxy do as a whole: a line for each kind, and a table where it permits one by one.
func (a *app) inForce(list []client.InForce) error {
	for i := range list {
		f := &list[i]
		fmt.Fprintf(a.stdout, "\n%s: %s, by %s\n", f.Type, f.Mode, writtenAt(f.Decides))
		if len(f.Permits) == 0 {
			continue
		}
		t := newTable(a.stdout, "PROTOCOL", "VALUE", "PORT", "REACHES", "FAMILY", "CLUSTER", "LOG", "BY")
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
			var logs, by []string
			for _, l := range p.AccessLogs {
				if !slices.Contains(logs, l.Sink) {
					logs = append(logs, l.Sink)
				}
			}
			for _, w := range p.Policies {
				by = append(by, writtenAt(w))
			}
			t.row(p.Protocol, p.Value, port, p.Reaches, family, p.Cluster, strings.Join(logs, ", "), strings.Join(by, ", "))
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

// writtenAt names a policy and the field of it.
func writtenAt(p client.FlowPolicy) string {
	return strings.ToLower(p.Type) + "/" + p.Name + " " + p.Field
}
