package envoybin

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// maxComplaint bounds the message of a finding, in bytes.
const maxComplaint = 2000

// complaint reads why an Envoy refuses a config: its words, and the resource that they are about
// where they name one.
func complaint(said string, cfg *staticConfig) (string, finding.Place) {
	message := reason(said)
	return message, cfg.about(message)
}

// reason finds the words of an Envoy that end its output. It logs lines of the form
// "[time][thread][level][component] [file:line] text", where a text may go on over several lines.
func reason(said string) string {
	var entries []string
	for line := range strings.Lines(said) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, "[") || len(entries) == 0 {
			entries = append(entries, line)
		} else {
			entries[len(entries)-1] += " " + strings.TrimSpace(line)
		}
	}
	entries = slices.DeleteFunc(entries, func(e string) bool { return strings.TrimSpace(e) == "" })
	if len(entries) == 0 {
		return "it refuses the config and does not say why"
	}
	best := entries[len(entries)-1]
	for _, mark := range []string{"[critical]", "[error]"} {
		if i := slices.IndexFunc(entries, func(e string) bool { return strings.Contains(e, mark) }); i >= 0 {
			best = entries[i]
			break
		}
	}
	for strings.HasPrefix(best, "[") { // the head of the line
		_, rest, found := strings.Cut(best, "]")
		if !found {
			break
		}
		best = strings.TrimSpace(rest)
	}
	if _, why, found := strings.Cut(best, "error initializing configuration '"); found {
		if _, after, found := strings.Cut(why, "': "); found {
			best = after
		}
	}
	best = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, best)
	if len(best) > maxComplaint {
		best = strings.ToValidUTF8(best[:maxComplaint], "") + "…"
	}
	return cmp.Or(strings.TrimSpace(best), "it refuses the config and does not say why")
}

// about returns the resource that a text names: the one of the longest name that stands in it as a
// whole, of two with one name the one whose type the text names. A listener may be named by its
// address.
func (s *staticConfig) about(text string) finding.Place {
	var best finding.Place
	lower := strings.ToLower(text)
	take := func(kind envoy.Kind, name string) {
		longer := len(name) > len(best.Resource)
		if name != "" && (longer || len(name) == len(best.Resource) && strings.Contains(lower, words[kind.URL()]) &&
			!strings.Contains(lower, words[best.Type])) && standsIn(text, name) {
			best = finding.Place{Type: kind.URL(), Resource: name}
		}
	}
	for _, l := range s.listeners {
		take(envoy.KindListener, l.Name)
	}
	for _, c := range s.clusters {
		take(envoy.KindCluster, c.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.routes)) {
		take(envoy.KindRoute, name)
	}
	for _, x := range s.secrets {
		take(envoy.KindSecret, x.Name)
	}
	if best.Resource != "" {
		return best
	}
	for _, l := range s.listeners {
		a := l.GetAddress().GetSocketAddress()
		if a != nil && standsIn(text, net.JoinHostPort(a.Address, strconv.FormatUint(uint64(a.GetPortValue()), 10))) {
			return finding.Place{Type: envoy.KindListener.URL(), Resource: l.Name}
		}
	}
	return finding.Place{}
}

// words are what messages call resources, by type.
var words = map[string]string{envoy.KindListener.URL(): "listener", envoy.KindCluster.URL(): "cluster",
	envoy.KindRoute.URL(): "route", envoy.KindSecret.URL(): "secret"}

// standsIn reports whether a name stands in a text and is not a part of a longer word.
func standsIn(text, name string) bool {
	word := func(s string) bool {
		if s == "" {
			return false
		}
		c := s[0]
		return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	for from := 0; ; {
		i := strings.Index(text[from:], name)
		if i < 0 {
			return false
		}
		i += from
		before, after := text[:i], text[i+len(name):]
		joined := after != "" && (after[0] == '.' || after[0] == ':') && word(after[1:])
		begun := before != "" &&
			(word(before[len(before)-1:]) || strings.HasSuffix(before, ".") || strings.HasSuffix(before, ":"))
		if !begun && !word(after) && !joined {
			return true
		}
		from = i + 1
	}
}
