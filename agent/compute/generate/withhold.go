package generate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Withhold returns the config of p to send, given the findings of its check. prev is the config
// sent before, or nil, and check checks a config in the same state. A resource with a blocking
// finding is withheld: the previous form, with the resources that it refers to, replaces it, or it
// is omitted. The result is valid as a whole, so resources that do not fit the previous form are
// withheld as well.
//
// If the result equals prev, it has the same Sealed pointer.
func (p *Proxy) Withhold(findings []finding.Finding, prev *draft.Sealed,
	check func(*Proxy) []finding.Finding) (*Proxy, []draft.Withheld) {
	if prev == nil {
		prev = &draft.Sealed{}
	}
	var withheld []draft.Withheld
	leftOut := map[draft.ResourceID]bool{} // true if prev has no usable form either
	for out := p; ; findings = check(out) {
		more := false
		for _, w := range Withheld(findings) {
			if out.Resource(w.ID) == nil {
				continue // removal of a resource that is still in use is reported separately
			}
			known := slices.ContainsFunc(withheld, func(o draft.Withheld) bool { return o.ID == w.ID })
			if w.Resource = p.Resource(w.ID); known || w.Resource == nil {
				leftOut[w.ID] = true // the previous form is not valid either
			} else {
				withheld = append(withheld, w)
				leftOut[w.ID] = draft.Find(prev.Resources[draft.Rank(w.ID.TypeURL)], w.ID.Name) == nil
			}
			more = true
		}
		if !more {
			return out, withheld
		}
		out = p.substitute(prev, withheld, leftOut)
	}
}

// substitute returns the config with the previous forms of withheld resources, and without those
// that are left out.
func (p *Proxy) substitute(prev *draft.Sealed, withheld []draft.Withheld, leftOut map[draft.ResourceID]bool) *Proxy {
	var older draft.Lists
	for _, w := range withheld {
		if rank := draft.Rank(w.ID.TypeURL); !leftOut[w.ID] {
			older[rank] = append(older[rank], draft.Find(prev.Resources[rank], w.ID.Name))
		}
	}
	next, out := *p, *p.Sealed
	out.Resources = draft.Substitute(&out.Resources, &older, &prev.Resources)
	for rank, typeURL := range draft.Types {
		list := draft.Merge(out.Resources[rank], nil, func(name string) bool {
			return leftOut[draft.ResourceID{TypeURL: typeURL, Name: name}]
		})
		if !draft.SameList(list, p.Sealed.Resources[rank]) {
			out.Resources[rank], out.Versions[rank] = draft.Order(list)
		}
	}
	out.Pipes = draft.Pipes(p.Sealed.Pipes, prev.Pipes, out.Resources[draft.RankListener])
	if next.Sealed = &out; out.Versions == prev.Versions && draft.SamePipes(out.Pipes, prev.Pipes) {
		next.Sealed = prev
	}
	return &next
}

// Withheld returns the resources that findings block, each once. The reason is the most severe
// finding; a finding that only follows from another withheld resource comes last.
func Withheld(findings []finding.Finding) []draft.Withheld {
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
	var out []draft.Withheld
	for _, id := range order {
		f := worst[id]
		out = append(out, draft.Withheld{ID: id, Rule: f.Rule, Reason: reasonOf(f, count[id]-1), Cause: rootOf(f, worst)})
	}
	return out
}

// follows reports whether a finding is the consequence of another withheld resource.
func follows(f *finding.Finding) bool {
	return len(f.Others) == 1 && f.Others[0].Type != f.Type && f.Others[0].Pointer == ""
}

// rootOf returns the resource that ultimately causes a finding, or the zero value.
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

// reasonOf describes a finding and the number of further findings about the resource.
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

// FindingText describes a finding without its resource: " at POINTER: MESSAGE (rule N: TITLE)".
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
