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

// maxComplaint limits the message of a finding, in bytes.
const maxComplaint = 2000

// complaint extracts the error message from Envoy's output and the resource that it names, if any.
func complaint(output string, cfg *staticConfig) (string, finding.Position) {
	message := reason(output)
	return message, cfg.about(message)
}

// reason extracts the error message. Log lines have the form "[time][thread][level][component]
// [file:line] text", and a text may span several lines.
func reason(output string) string {
	var entries []string
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, "[") || len(entries) == 0 {
			entries = append(entries, line)
		} else {
			entries[len(entries)-1] += " " + strings.TrimSpace(line)
		}
	}
	entries = slices.DeleteFunc(entries, func(e string) bool { return strings.TrimSpace(e) == "" })
	if len(entries) == 0 {
		return "Envoy rejects the config without a reason"
	}
	best := entries[len(entries)-1]
	for _, mark := range []string{"[critical]", "[error]"} {
		if i := slices.IndexFunc(entries, func(e string) bool { return strings.Contains(e, mark) }); i >= 0 {
			best = entries[i]
			break
		}
	}
	for strings.HasPrefix(best, "[") { // the prefix of the line
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
	return cmp.Or(strings.TrimSpace(best), "Envoy rejects the config without a reason")
}

// about returns the resource that a text names. It prefers the longest name, and among resources of
// one name the one whose type the text names. The text may name a listener by its address.
func (s *staticConfig) about(text string) finding.Position {
	var best finding.Position
	lower := strings.ToLower(text)
	take := func(kind envoy.Kind, name string) {
		longer := len(name) > len(best.Resource)
		if name != "" && (longer || len(name) == len(best.Resource) && strings.Contains(lower, words[kind.URL()]) &&
			!strings.Contains(lower, words[best.Type])) && containsWord(text, name) {
			best = finding.Position{Type: kind.URL(), Resource: name}
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
		if a != nil && containsWord(text, net.JoinHostPort(a.Address, strconv.FormatUint(uint64(a.GetPortValue()), 10))) {
			return finding.Position{Type: envoy.KindListener.URL(), Resource: l.Name}
		}
	}
	return finding.Position{}
}

// words are the names of resource types in messages.
var words = map[string]string{envoy.KindListener.URL(): "listener", envoy.KindCluster.URL(): "cluster",
	envoy.KindRoute.URL(): "route", envoy.KindSecret.URL(): "secret"}

// containsWord reports whether a text contains a name that is not part of a longer word.
func containsWord(text, name string) bool {
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
