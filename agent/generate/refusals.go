package generate

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/finding"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// Refusals returns the resources of a config that must not be sent, one for each that has a finding which blocks. Of
// several findings the worst is told; one that only follows from another refused resource comes last.
func Refusals(findings []finding.Finding) []xds.Refusal {
	worst := map[draft.ResourceID]*finding.Finding{}
	count := map[draft.ResourceID]int{}
	var order []draft.ResourceID
	for i := range findings {
		f := &findings[i]
		if !f.Severity.Blocks() {
			continue
		}
		id := draft.ResourceID{TypeURL: f.Type, Name: f.Resource}
		count[id]++
		switch old := worst[id]; {
		case old == nil:
			worst[id] = f
			order = append(order, id)
		case follows(old) && !follows(f), follows(old) == follows(f) && f.Severity < old.Severity:
			worst[id] = f
		}
	}
	var out []xds.Refusal
	for _, id := range order {
		f := worst[id]
		out = append(out, xds.Refusal{ID: id, Rule: f.Rule, Reason: reasonOf(f, count[id]-1), Cause: rootOf(f, worst)})
	}
	return out
}

// follows says whether a finding is that something else is not sent.
func follows(f *finding.Finding) bool {
	return len(f.Others) == 1 && f.Others[0].Type != f.Type && f.Others[0].Pointer == ""
}

// rootOf returns the resource that a finding follows from in the end, the zero value when it follows from none.
func rootOf(f *finding.Finding, worst map[draft.ResourceID]*finding.Finding) (root draft.ResourceID) {
	for range draft.Types {
		if f == nil || !follows(f) {
			return root
		}
		id := draft.ResourceID{TypeURL: f.Others[0].Type, Name: f.Others[0].Resource}
		if worst[id] == nil {
			return root
		}
		root, f = id, worst[id]
	}
	return root
}

// reasonOf tells a finding to people, with how many more there are about the resource.
func reasonOf(f *finding.Finding, more int) string {
	var b strings.Builder
	b.WriteString("not sent: ")
	if f.Severity == finding.Reject {
		b.WriteString("Envoy would reject it")
	} else {
		b.WriteString("it would never work")
	}
	b.WriteString(FindingText(f))
	if more > 0 {
		fmt.Fprintf(&b, "; and %d more findings", more)
	}
	return b.String()
}

// FindingText tells a finding without its resource: " at POINTER: MESSAGE (rule N: TITLE)".
func FindingText(f *finding.Finding) string {
	var b strings.Builder
	if f.Pointer != "" {
		b.WriteString(" at " + f.Pointer)
	}
	b.WriteString(": " + f.Message)
	fmt.Fprintf(&b, " (rule %d", f.Rule)
	if title := finding.Title(f.Rule); title != "" {
		b.WriteString(": " + title)
	}
	b.WriteString(")")
	return b.String()
}

// Had returns a config that holds, in place of what a client refuses of p, or the check before it, the forms that were
// accepted last. It is there to be compared with: its lists have no versions.
func (p *Proxy) Had(refused []xds.Rejection) *Proxy {
	form := make(map[draft.ResourceID]*draft.Resource, len(refused))
	for i := range refused {
		form[refused[i].ID] = refused[i].Accepted
	}
	out := *p
	out.Sealed = &draft.Sealed{}
	for rank, list := range p.Sealed.Resources {
		for _, r := range list {
			if accepted, is := form[draft.ResourceID{TypeURL: draft.Types[rank], Name: r.Name}]; is {
				r = accepted
			}
			if r != nil {
				out.Sealed.Resources[rank] = append(out.Sealed.Resources[rank], r)
			}
		}
	}
	return &out
}
