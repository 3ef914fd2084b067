package metric

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
)

// basic selects the statistics of the profile Basic by Envoy's names: the golden signals, and
// statistics in Kuma's dashboards.
const basic = `_rq|rq_time|cx_(length_ms|count|destroy|active|connect|total)|bytes|timeout|health_check|lb_healthy_panic` +
	`|membership_(degraded|healthy|total)|error|fail|reset|eject|overflow|cancelled|max_duration_reached` +
	`|no_cluster|no_route|no_filter_chain|reject|denied|days_until_first_cert_expiring|^server\.|^control_plane\.` +
	`|rbac|ssl\.handshake|circuit_breakers|ssl_context_update_by_sds|^dns_filter\.|^dns\.cares\.`

const (
	// nothing matches no statistic, because no name is empty.
	nothing = `^$`
	// family is the prefix of the Prometheus names of Envoy's own statistics.
	family = "envoy_"
	// gap matches what may be an underscore in a Prometheus name: one character that Prometheus
	// does not allow, or two such characters around a segment that became a label.
	gap = `[^a-zA-Z0-9](?:.*[^a-zA-Z0-9])?`
	// end matches the end of a name, or a last segment that became a label.
	end = `(?:[^a-zA-Z0-9].*)?$`
)

// filter returns a regular expression for Envoy's statistic names that matches at least all
// selected metrics; "" for all statistics.
func (s *Sidecar) filter() string {
	var p Profiles
	if s != nil && s.Profiles != nil {
		p = *s.Profiles
	}
	var patterns []string
	switch p.broadest() {
	case profileAll:
		return ""
	case profileBasic:
		patterns = append(patterns, basic)
	}
	if p.includesRegex() {
		return "" // regular expressions match Prometheus names
	}
	for _, q := range toolkit.Or(p.Include, nil) {
		alternatives := q.pattern()
		if alternatives == nil {
			return ""
		}
		patterns = append(patterns, alternatives...)
	}
	if len(patterns) == 0 {
		return nothing
	}
	return strings.Join(patterns, "|")
}

func (p *Profiles) includesRegex() bool {
	return slices.ContainsFunc(toolkit.Or(p.Include, nil), func(q Selector) bool { return q.Type == selectRegex })
}

// broadest returns the profile that includes the others.
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

// pattern returns alternatives that match Envoy's names of the selected metrics. It returns nil for
// all names, and an empty list for none.
func (s *Selector) pattern() []string {
	rest, builtin := strings.CutPrefix(s.Match, family)
	switch {
	case s.Type == selectExact && builtin:
		return each("^", rest, end)
	case s.Type == selectExact:
		return each("", s.Match, end) // a custom namespace, which Envoy removes
	case s.Type == selectPrefix && builtin && rest != "":
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

// each returns a pattern for a string, or none for a string that occurs in no Prometheus name.
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
