package passthrough_test

import (
	"slices"
	"strings"
	"testing"
)

// TestDomainsOfTCP checks that plain TCP to a domain requires the pinning label, a complete domain,
// and a port.
func TestDomainsOfTCP(t *testing.T) {
	pin := func(matches ...string) string { return labelled(`"true"`, matched("p", matches...)) }
	if f := faultsOf(pin("tcp db.example.com:5432", "tls db.example.com:443")); len(f) > 0 {
		t.Error(f)
	}
	for _, c := range []struct{ doc, field, reason string }{
		{matched("p", "tcp db.example.com:5432"), "protocol", `with the label nearside.io/dns-pinned: "true"`},
		{labelled(`"false"`, matched("p", "tcp db.example.com:5432")), "protocol", "cannot be combined with a domain"},
		{pin("tcp *.example.com:5432"), "value", "give complete domains"},
		{pin("tcp *:5432"), "value", "give complete domains"},
		{pin("tcp db.example.com"), "port", "the port is missing"},
		{pin("mysql db.example.com:3306"), "protocol", "cannot be combined with a domain"},
		{pin("tcp db.example.com:5432", "tcp db.example.com:5432"), "", "appendMatch[0] is identical"},
	} {
		at := "spec.default.appendMatch[0]." + c.field
		if c.field == "" {
			at = "spec.default.appendMatch[1].value"
		}
		refused(t, c.doc, at, c.reason)
	}
}

// TestDomainsThroughTheEgress checks that domains for plain TCP have no virtual addresses through
// an egress, with a warning.
func TestDomainsThroughTheEgress(t *testing.T) {
	const through = "type: Mesh\nname: default\nmtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}\n" +
		"routing: {zoneEgress: true}\nnetworking: {outbound: {passthrough: false}}\n"
	e, warnings := newEnvoy(t, through+strings.TrimPrefix(base, strings.SplitN(base, "---", 2)[0])+
		labelled(`"true"`, matched("p", "tcp db.example.com:5432", "tls db.example.com:443")))
	for name := range e.clusters {
		if strings.HasPrefix(name, "meshpassthrough_tcp") {
			t.Errorf("unexpected cluster %s", name)
		}
	}
	if !slices.ContainsFunc(warnings, func(w string) bool {
		return strings.Contains(w,
			"appendMatch[0] (tcp db.example.com, port 5432) has no effect, because external traffic leaves through the "+
				"ZoneEgress")
	}) {
		t.Error(warnings)
	}
}
