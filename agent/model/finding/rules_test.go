package finding_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// TestRulesAreDocumented compares docs/rules.md with the list of rules, so that users can look up
// the number in a message. UPDATE_GOLDEN=1 updates the page.
func TestRulesAreDocumented(t *testing.T) {
	const page = "../../../docs/rules.md"
	var b strings.Builder
	b.WriteString("# Rules of the check\n\n" +
		"Every config is checked against these rules before it is sent. A finding ends with the number and\n" +
		"title of its rule. `reject`: Envoy rejects the resource. `unusable`: Envoy loads it, but it can\n" +
		"never work. `warning`: it works differently than expected. `lint`: a better form exists. The\n" +
		"first two withhold the resource: [the check](operations.md#the-check).\n" +
		`
| rule | severity | title | not checked because |
|---|---|---|---|
`)
	for i, r := range finding.Rules() {
		if i > 0 && finding.Rules()[i-1].Number >= r.Number {
			t.Errorf("rule %d stands behind rule %d", r.Number, finding.Rules()[i-1].Number)
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", r.Number, r.Severity, r.Title, r.Unchecked)
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(have)); diff != "" {
		t.Errorf("docs/rules.md, UPDATE_GOLDEN=1 writes it anew (-want +have):\n%s", diff)
	}
}
