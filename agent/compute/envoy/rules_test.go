package envoy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// ruleCase breaks one rule of a good config.
type ruleCase struct {
	rule     int
	name     string
	severity finding.Severity
	resource string // "" for the listener "in"
	pointer  string // prefix of the finding's pointer
	words    string // text that the message contains
	breaks   func(*base)
}

// goodCase is a config that is similar to a bad one but does not break the rule.
type goodCase struct {
	rule int
	name string
	make func(*base)
}

func sealBase(t *testing.T, b *base, certificate, key []byte) (prev, next *envoy.Snapshot) {
	t.Helper()
	if b.prev != nil {
		before := newBase(certificate, key)
		b.prev(before)
		prev = snapshot(t, before.messages()...)
	}
	next = snapshot(t, b.messages()...)
	if b.edit != nil {
		b.edit(next)
	}
	return prev, next
}

func TestBaseIsGood(t *testing.T) {
	certificate, key := keyPair(t)
	b := newBase(certificate, key)
	_, next := sealBase(t, b, certificate, key)
	for _, f := range check.Check(nil, next, b.facts) {
		t.Errorf("%+v", f)
	}
}

// TestRules breaks one rule at a time, and checks that a finding names the rule and the location of
// the fault. Every rule that the check implements must have a case.
func TestRules(t *testing.T) {
	certificate, key := keyPair(t)
	shown := map[int]bool{}
	for i, c := range ruleCases() {
		t.Run(fmt.Sprintf("%d-%d %s", c.rule, i, c.name), func(t *testing.T) {
			b := newBase(certificate, key)
			c.breaks(b)
			prev, next := sealBase(t, b, certificate, key)
			findings := check.Check(prev, next, b.facts)
			resource := c.resource
			if resource == "" {
				resource = "in"
			}
			found := false
			for _, f := range findings {
				if f.Rule == c.rule && f.Severity == c.severity && f.Resource == resource &&
					strings.HasPrefix(f.Pointer, c.pointer) && strings.Contains(f.Message, c.words) {
					found = true
				}
			}
			if !found {
				t.Errorf("no finding %d %v %s at %s with %q among:", c.rule, c.severity, resource, c.pointer, c.words)
				for _, f := range findings {
					t.Errorf("  %d %v %s %s: %s", f.Rule, f.Severity, f.Resource, f.Pointer, f.Message)
				}
			}
			for _, f := range findings {
				if f.Type == "" || f.Resource == "" || f.Message == "" {
					t.Errorf("a finding without a place or a message: %+v", f)
				}
			}
			shown[c.rule] = true
		})
	}
	for _, r := range finding.Rules() {
		if (r.Unchecked == "") != shown[r.Number] {
			t.Errorf("rule %d (%s): checked %v, shown by a case %v", r.Number, r.Title, r.Unchecked == "", shown[r.Number])
		}
	}
}

// TestGoodNeighbours checks that valid configs close to a bad one have no findings.
func TestGoodNeighbours(t *testing.T) {
	certificate, key := keyPair(t)
	for _, c := range goodCases() {
		t.Run(fmt.Sprintf("%d %s", c.rule, c.name), func(t *testing.T) {
			b := newBase(certificate, key)
			c.make(b)
			prev, next := sealBase(t, b, certificate, key)
			for _, f := range check.Check(prev, next, b.facts) {
				if f.Rule == c.rule || f.Severity.Blocks() {
					t.Errorf("%d %v %s %s: %s", f.Rule, f.Severity, f.Resource, f.Pointer, f.Message)
				}
			}
		})
	}
}

func TestRulesAreNumbered(t *testing.T) {
	last := -1
	for _, r := range finding.Rules() {
		if r.Number <= last || r.Title == "" {
			t.Errorf("rule %d behind %d: %q", r.Number, last, r.Title)
		}
		if r.Number <= 120 && r.Number != last+1 {
			t.Errorf("rules %d to %d are missing", last+1, r.Number-1)
		}
		last = r.Number
	}
}
