package text_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// TestUpstreams shows the upstreams of each domain, and why one cannot be used.
func TestUpstreams(t *testing.T) {
	list := []api.DNSUpstream{{Address: "192.0.2.1:53", Protocol: "udp"},
		{Address: "10.0.0.1:853", Protocol: "tls", Domains: []string{"corp.example", "lab.example"}, Down: true},
		{Address: "10.0.0.2:853", Protocol: "tls", Domains: []string{"corp.example", "lab.example"}, Problem: "expired"}}
	var status, explained strings.Builder
	text.Status(&status, &api.Status{DNS: &api.DNSLine{State: api.DNSServing, Upstreams: list}})
	text.DNSExplanation(&explained, &explaindns.DNS{Steps: []explaindns.DNSStep{
		{Name: "a.corp.example", Domain: "corp.example", Upstreams: list[1:]}}})
	const of = "10.0.0.1:853 over tls (does not respond), 10.0.0.2:853 over tls (expired)\n"
	for _, want := range []string{
		"upstreams of other names: 192.0.2.1:53\n", "upstreams of corp.example, lab.example: " + of,
	} {
		if !strings.Contains(status.String(), want) {
			t.Errorf("the status is\n%s\nwant %q", status.String(), want)
		}
	}
	if !strings.Contains(explained.String(), "upstreams "+of) {
		t.Errorf("the explanation is\n%s\nwant %q", explained.String(), of)
	}
	for name, want := range map[string]string{
		"a.Corp.example.": "corp.example",
		"xcorp.example":   "",
		"corp.example":    "corp.example",
	} {
		if got, domain := api.UpstreamsFor(list, name); domain != want || (len(got) == 2) != (want != "") {
			t.Errorf("%s: %q, %v", name, domain, got)
		}
	}
}
