package text

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// InMesh returns " in mesh NAME", or "" for a global resource.
func InMesh(mesh string) string {
	if mesh == "" {
		return ""
	}
	return " in mesh " + mesh
}

// mostFields bounds the fields of one change in a table.
const mostFields = 3

// fields returns the changed fields in one cell.
func fields(list []jsonpatch.FieldChange) string {
	s := Each(list[:min(len(list), mostFields)], fieldChange)
	if n := len(list) - mostFields; n > 0 {
		s = append(s, fmt.Sprintf("%d more", n))
	}
	return strings.Join(s, ", ")
}

// fieldChange returns a field with its old and new value, clipped if they are long.
func fieldChange(f jsonpatch.FieldChange) string {
	value := func(raw []byte) string { return Short(string(raw), 41) }
	switch {
	case f.Before == nil:
		return f.Path + " = " + value(f.After)
	case f.After == nil:
		return f.Path + " removed"
	}
	return f.Path + " " + value(f.Before) + " → " + value(f.After)
}

// Pairs returns a map as k=v,k=v in sorted order.
func Pairs(m map[string]string) string {
	return strings.Join(Each(slices.Sorted(maps.Keys(m)), func(k string) string { return k + "=" + m[k] }), ",")
}

// Each returns f applied to each item.
func Each[T, U any](list []T, f func(T) U) []U {
	out := make([]U, len(list))
	for i, x := range list {
		out[i] = f(x)
	}
	return out
}

// Texts returns each item as fmt prints it.
func Texts[T any](list []T) []string { return Each(list, func(x T) string { return fmt.Sprint(x) }) }

// TypeAndName returns a resource in the form that commands accept.
func TypeAndName(typ, name string) string { return strings.ToLower(typ) + "/" + name }

// Time returns a time with its zone, as in all output.
func Time(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Age returns the time since t in its largest unit: 45s, 3m, 5h, 12d.
func Age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := max(time.Since(t), 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// OrDash returns "-" for an empty text.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// YesNo returns "yes" or "no".
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// bytesText returns a number of bytes in a readable unit.
func bytesText(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// OneLine replaces the line breaks of an Envoy message with spaces.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// SourceText returns an item of a policy: NAME to[0].
func SourceText(s explain.Source) string {
	if s.Field == "spec" { // the whole policy
		return s.Name
	}
	field := strings.TrimPrefix(s.Field, "spec.")
	if field != "default" {
		field = strings.TrimSuffix(field, ".default")
	}
	return s.Name + " " + field
}

// InboundPort returns the port of an inbound.
func InboundPort(in explain.Inbound) string { return fmt.Sprint(in.Port) }

func metaName(m explain.ResourceMeta) string { return m.Name }

func matchersText(tags []policy.Tag, none string) string {
	if len(tags) == 0 {
		return none
	}
	return strings.Join(Each(tags, func(t policy.Tag) string {
		if t.Not {
			return t.Key + "!=" + t.Value
		}
		return t.Key + "=" + t.Value
	}), ", ")
}

// ClientsText describes clients by their tags or certificates.
func ClientsText(tags []policy.Tag, match fmt.Stringer, matched bool) string {
	if matched {
		return match.String()
	}
	return matchersText(tags, "all clients")
}

// ValueText returns a value for a table: strings unquoted, long values clipped.
func ValueText(raw []byte) string {
	s := string(raw)
	if len(s) > 2 && s[0] == '"' && !strings.ContainsAny(s[1:len(s)-1], `\"`) {
		s = s[1 : len(s)-1]
	}
	return Short(s, 48)
}

// Short clips a text to a number of characters.
func Short(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

// Some lists the first few items.
func Some(list []string) string {
	const most = 4
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most-1], ", "), len(list)-most+1)
}

// Counts returns counts by name in sorted order: "3 api, 2 file".
func Counts[N int | uint64](m map[string]N) string {
	list := Each(slices.Sorted(maps.Keys(m)), func(k string) string { return fmt.Sprintf("%d %s", m[k], k) })
	return cmp.Or(strings.Join(list, ", "), "none")
}

// Instead says which version an Envoy gets instead of a rejected one: "; Envoy gets the version
// without X". It returns "" if policies are not left out.
func Instead(without []api.Omitted) string {
	if len(without) == 0 {
		return ""
	}
	return "; Envoy gets " + api.OmittedText(without)
}

// AppliedState returns the state of a policy on the proxies in a few words.
func AppliedState(s api.Applied) string {
	switch s.State {
	case api.StateRejected:
		r := s.Rejected[0]
		who := r.Mesh + "/" + r.Name
		if s.RejectedTotal > 1 {
			who += fmt.Sprintf(" and %d more", s.RejectedTotal-1)
		}
		verb := "rejected by"
		if r.By != api.HeldByProxy && r.By != "" {
			verb = "withheld from"
		}
		return fmt.Sprintf("%s %s: %s: %s", verb, who, r.Resource,
			OneLine(r.Reason)+api.RetrySaid(r.Retry, time.Now())+Instead(r.Without))
	case api.StateStale:
		return fmt.Sprintf("stale on %s: %s", plural.Count(s.LateTotal, "proxy"), OneLine(s.Late[0].Reason))
	case api.StatePending:
		return "pending on " + plural.Count(s.LateTotal, "proxy")
	case api.StateNoEffect:
		if _, why, ok := strings.Cut(s.Reason, ": "); ok {
			return "no effect: " + OneLine(why)
		}
		return "no effect"
	case api.StateUnselected:
		return "selects nothing"
	case api.StateApplied:
		if s.Proxies == 0 {
			return "no proxy here"
		}
		return "applied on " + plural.Count(s.Proxies, "proxy")
	}
	return s.State
}

// Kinds writes the types of resources.
func Kinds(w io.Writer, list []api.Kind) {
	Rows(w, list, func(k api.Kind) []string {
		as := ""
		switch {
		case k.Legacy:
			as = "legacy policy"
		case k.Policy:
			as = "policy"
		}
		return []string{k.Plural, k.Short, k.Kind, fmt.Sprint(!k.Global), as}
	}, "NAME", "SHORT", "KIND", "MESHED", "ACTS AS")
}
