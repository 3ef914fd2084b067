package metric

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
)

// basic selects the statistics of the profile Basic by Envoy's names: the golden signals, and what
// dashboards show.
const basic = `_rq|rq_time|cx_(length_ms|count|destroy|active|connect|total)|bytes|timeout|health_check|lb_healthy_panic` +
	`|membership_(degraded|healthy|total)|error|fail|reset|eject|overflow|cancelled|max_duration_reached` +
	`|no_cluster|no_route|no_filter_chain|reject|denied|days_until_first_cert_expiring|^server\.|^control_plane\.` +
	`|rbac|ssl\.handshake|circuit_breakers|ssl_context_update_by_sds|^dns_filter\.|^dns\.cares\.`

const (
	// nothing matches no statistic: none has an empty name.
	nothing = `^$`
	// family is what Envoy puts before its own names to make those of Prometheus.
	family = "envoy_"
	// gap is what an underscore of a name in Prometheus may have been: one character that is not
	// allowed there, or two of them around a part that became a label.
	gap = `[^a-zA-Z0-9](?:.*[^a-zA-Z0-9])?`
	// end is where a name ends, or where its last part became a label.
	end = `(?:[^a-zA-Z0-9].*)?$`
)

// filter is a regular expression over Envoy's names of statistics that holds for all that is to be
// served; "" for everything.
func (s *Sidecar) filter() string {
	var p Profiles
	if s != nil && s.Profiles != nil {
		p = *s.Profiles
	}
	var parts []string
	switch p.broadest() {
	case profileAll:
		return ""
	case profileBasic:
		parts = append(parts, basic)
	}
	if p.includesRegex() {
		return "" // the expression is about names in Prometheus
	}
	for _, q := range toolkit.Or(p.Include, nil) {
		alternatives := q.pattern()
		if alternatives == nil {
			return ""
		}
		parts = append(parts, alternatives...)
	}
	if len(parts) == 0 {
		return nothing
	}
	return strings.Join(parts, "|")
}

func (p *Profiles) includesRegex() bool {
	return slices.ContainsFunc(toolkit.Or(p.Include, nil), func(q Selector) bool { return q.Type == selectRegex })
}

// broadest of the profiles: each holds the next.
func (p *Profiles) broadest() string {
	list := toolkit.Or(p.AppendProfiles, nil)
	if len(list) == 0 {
		return profileBasic
	}
	out := profileNone
	for _, p := range list {
		switch {
		case p.Name == profileAll:
			return profileAll
		case p.Name == profileBasic:
			out = profileBasic
		}
	}
	return out
}

// pattern is alternatives of what Envoy's names of the selected metrics match; nil for all names, a
// list without items for none.
func (s *Selector) pattern() []string {
	rest, own := strings.CutPrefix(s.Match, family)
	switch {
	case s.Type == selectExact && own:
		return each("^", rest, end)
	case s.Type == selectExact:
		return each("", s.Match, end) // of a namespace of its own, which Envoy cuts off
	case s.Type == selectPrefix && own && rest != "":
		return each("^", rest, "")
	case s.Type == selectPrefix && strings.HasPrefix(family, s.Match):
		return nil
	case s.Type == selectPrefix:
		return each("", s.Match, "")
	case strings.Contains(family, s.Match):
		return nil
	}
	out := each("", s.Match, "")
	for i := range family {
		if rest, ok := strings.CutPrefix(s.Match, family[i:]); ok {
			out = append(out, each("^", rest, "")...)
		}
	}
	return out
}

// each returns the pattern of one text, or nothing for a text that no name in Prometheus has.
func each(before, text, after string) []string {
	var b strings.Builder
	b.WriteString(before)
	for i := range len(text) {
		switch c := text[i]; {
		case c == '_':
			b.WriteString(gap)
		case c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			b.WriteByte(c)
		default:
			return []string{}
		}
	}
	b.WriteString(after)
	return []string{b.String()}
}
