package names

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Class says how the resolver of a node answers queries for the addresses of a name.
type Class string

// Classes of names.
const (
	ClassAddresses Class = "addresses" // a mesh has the name, with addresses for the client
	ClassEmpty     Class = "empty"     // a mesh has the name, without addresses for the client
	ClassAbsent    Class = "absent"    // the name has an owned or local suffix, and does not exist for the client
	ClassForwarded Class = "forwarded" // the name does not belong to the meshes: upstreams decide
	ClassPending   Class = "pending"   // the meshes own the name, and there is no mesh yet, or one is missing
)

// Classification is the class of one name for one client.
type Classification struct {
	Class Class
	// Owner is the owner of the name, which may be invisible to the client; nil if no service or
	// policy has the name.
	Owner  *Name
	Hidden bool         // other clients see the name, and this one does not
	Suffix string       // the owned suffix of the name, or ""
	Addrs  []netip.Addr // for the client, IPv4 first
}

// Classifier classifies names with the table that the DNS server of a node uses. It is immutable.
type Classifier struct {
	*Table
	served *table.Table
}

// Classifier returns a classifier with the names of the table.
func (t *Table) Classifier() *Classifier {
	served, _ := t.Served(0, 0) // the resolver logs names that cannot be served
	return &Classifier{t, served}
}

// Served returns the table of a DNS server, with TTLs in seconds of answers with and without
// records; 0 means the default of the server. The errors are names that cannot be served.
func (t *Table) Served(ttl, negative uint32) (*table.Table, []error) {
	o := table.Options{Suffixes: t.OwnedSuffixes(), Forwarded: t.forwarded(), Local: true, TTL: ttl, NegativeTTL: negative}
	for i := range t.Suffixes {
		if t.Suffixes[i].Asked {
			o.Default = append(o.Default, t.Suffixes[i].Name)
		}
	}
	return table.New(o, t.Hosts())
}

// Classify returns the class of a name for a view. The error is not nil if the name is invalid.
func (c *Classifier) Classify(name string, v *table.View) (out Classification, err error) {
	outcome, suffix, err := c.served.Lookup(name, table.TypeA, v)
	if err != nil {
		return Classification{Class: ClassForwarded}, err
	}
	out.Owner, out.Suffix = c.Find(hostOf(name)), suffix
	missing := outcome == table.OutcomeNoName && len(c.Missing()) > 0
	if (c.Pending || missing) && suffix != "" && c.Local(suffix) == "" {
		out.Class = ClassPending
		return out, nil
	}
	switch outcome {
	case table.OutcomeForwarded:
		out.Class = ClassForwarded
		return out, nil
	case table.OutcomeNoName:
		out.Class = ClassAbsent
		all, _, _ := c.served.Lookup(name, table.TypeA, nil)
		out.Hidden = all != table.OutcomeNoName
		return out, nil
	}
	out.Class, out.Addrs = ClassEmpty, c.served.Addrs(name, v)
	if len(out.Addrs) > 0 {
		out.Class = ClassAddresses
	}
	return out, nil
}

// Local returns why names below an owned suffix never leave the host, or "" for suffixes of the
// meshes.
func (t *Table) Local(owned string) string {
	name, why := table.LocalSuffix(owned)
	if name != owned || slices.Contains(t.OwnedSuffixes(), owned) {
		return ""
	}
	return why
}

// Served returns the table of the DNS server.
func (c *Classifier) Served() *table.Table { return c.served }

// Client returns the view of a dataplane's workload, or nil if it sees everything except domains.
func (c *Classifier) Client(m Mesh, dataplane *resource.Resource) *table.View {
	v, _ := c.ViewOf(m, dataplane)
	if v == nil {
		v = c.OthersView()
	}
	return v.DNS()
}

// hostOf returns HOST for _PORT._tcp.HOST, and other names unchanged.
func hostOf(name string) string {
	if strings.HasPrefix(name, "_") {
		if _, host, ok := strings.Cut(name, "._tcp."); ok {
			return host
		}
	}
	return name
}
