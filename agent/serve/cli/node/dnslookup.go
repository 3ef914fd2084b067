package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// dnsAnswer is the answer to one query, as "dns lookup -o json" prints it.
type dnsAnswer struct {
	Name    string      `json:"name"`
	Type    string      `json:"type"`
	Rcode   string      `json:"rcode"`
	Mesh    bool        `json:"mesh"` // the resolver answered from its name table
	Answers []dnsRecord `json:"answers"`
	Server  string      `json:"server"`
	TCP     bool        `json:"tcp"`
	Seconds float64     `json:"seconds"`
	Why     string      `json:"why,omitempty"` // why the query failed: the extended DNS error (RFC 8914)
}

// dnsRecord is one record of an answer.
type dnsRecord struct {
	Name string `json:"name"`
	Type string `json:"type"`
	TTL  uint32 `json:"ttl"`
	Data string `json:"data"`
}

// dnsAnswers is the document of "dns lookup -o json".
type dnsAnswers struct {
	Answers []*dnsAnswer `json:"lookups"`
}

func (x *dnsAnswers) found() bool {
	return slices.ContainsFunc(x.Answers, func(d *dnsAnswer) bool { return len(d.Answers) > 0 })
}

// lookupTypes lists the supported record types.
var lookupTypes = [...]string{"A", "AAAA", "SRV", "PTR"}

func dnsLookupCommand(env *command.Env) *cobra.Command {
	var tcp bool
	cmd := &cobra.Command{
		Use:   "lookup NAME [A|AAAA|SRV|PTR]",
		Short: "Query the agent's resolver for a name",
		Long: `Queries the agent's resolver as a client on this host does: over UDP, and over TCP if the answer is
truncated. Without a type, it asks for A and AAAA records. If NAME is an address, it asks for the
name of that address.

The query does not use the search list of resolv.conf. "nearside explain dns" explains why a name
resolves as it does.

The exit code is 2 if there are no records.`,
		Example: "  nearside dns lookup backend.mesh\n  nearside dns lookup backend.mesh SRV\n" +
			"  nearside dns lookup 240.0.0.1 -o json",
		Args: command.Args(1, 2, "NAME, and a type of records"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return lookupTypes[:], cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().BoolVar(&tcp, "tcp", false, "query over TCP")
	ask := func(ctx context.Context, args []string) (*dnsAnswers, error) {
		name, types := args[0], []string{"A", "AAAA"}
		if addr, err := netip.ParseAddr(name); err == nil {
			if name, err = dns.ReverseAddr(addr.Unmap().WithZone("").String()); err != nil {
				return nil, command.Usagef("%q: %w", args[0], err)
			}
			types = []string{"PTR"}
		}
		if len(args) > 1 {
			types = []string{strings.ToUpper(args[1])}
			if !slices.Contains(lookupTypes[:], types[0]) {
				return nil, command.Usagef("unknown record type %q; use one of %s",
					args[1], strings.Join(lookupTypes[:], ", "))
			}
		}
		if _, ok := dns.IsDomainName(name); !ok {
			return nil, command.Usagef("%q is not a domain name: it has labels of up to 63 bytes, separated by dots, "+
				"and up to 255 bytes in all", name)
		}
		if err := env.OnNode("dns lookup"); err != nil {
			return nil, err
		}
		server, _, err := resolverAddress(ctx, env)
		if err != nil {
			return nil, err
		}
		out := &dnsAnswers{}
		for _, t := range types {
			network := "udp"
			if tcp {
				network = "tcp"
			}
			got, err := lookup(ctx, server, network, name, t)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", server, err)
			}
			out.Answers = append(out.Answers, got)
		}
		return out, nil
	}
	return command.Asking(env, cmd, command.AsText, func(w io.Writer, x *dnsAnswers) { lookupText(w, env.Stderr, x) }, ask,
		func(x *dnsAnswers) bool { return !x.found() })
}

func lookupText(w, notes io.Writer, x *dnsAnswers) {
	var summaries []string
	t := text.NewTable(w, "NAME", "TTL", "TYPE", "DATA")
	for _, d := range x.Answers {
		for _, r := range d.Answers {
			t.Row(r.Name, fmt.Sprint(r.TTL), r.Type, r.Data)
		}
		from := "from an upstream"
		if d.Mesh {
			from = "from the mesh"
		}
		line := fmt.Sprintf("%s: %s with %s %s in %.1f ms", d.Type, d.Rcode, plural.Count(len(d.Answers), "record"), from,
			d.Seconds*1000)
		if d.Why != "" {
			line += ": " + d.Why
		}
		summaries = append(summaries, line)
	}
	if x.found() {
		t.Flush()
	}
	for _, line := range summaries {
		text.Printf(notes, "%s\n", line)
	}
}

// lookupTime bounds one query. It exceeds the time after which the resolver itself reports a
// failure.
const lookupTime = 6 * time.Second

// lookup sends one query to a server, and repeats it over TCP if the answer is truncated.
func lookup(ctx context.Context, server, network, name, qtype string) (*dnsAnswer, error) {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), dns.StringToType[qtype])
	m.SetEdns0(dns.DefaultMsgSize, false)
	c := dns.Client{Net: network, Timeout: lookupTime}
	got, elapsed, err := c.ExchangeContext(ctx, m, server)
	switch {
	case err == nil && got.Truncated && network == "udp":
		return lookup(ctx, server, "tcp", name, qtype)
	case err != nil:
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil, fmt.Errorf("no answer over %s within %s", network, lookupTime)
		}
		return nil, err
	}
	out := &dnsAnswer{Name: strings.TrimSuffix(name, "."), Type: qtype, Rcode: dns.RcodeToString[got.Rcode],
		Mesh: got.Authoritative, Answers: []dnsRecord{},
		Server: server, TCP: network == "tcp", Seconds: elapsed.Seconds()}
	for _, rr := range got.Answer {
		h := rr.Header()
		out.Answers = append(out.Answers, dnsRecord{Name: strings.TrimSuffix(h.Name, "."),
			Type: dns.TypeToString[h.Rrtype], TTL: h.Ttl,
			Data: strings.TrimPrefix(rr.String(), h.String())})
	}
	if opt := got.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				out.Why = strings.TrimSpace(dns.ExtendedErrorCodeToString[e.InfoCode] + " " + e.ExtraText)
			}
		}
	}
	return out, nil
}
