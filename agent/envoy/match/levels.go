package match

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"github.com/nearside-mesh/nearside/agent/clip"
)

// maxListed bounds the lists of a step; Step.More counts the rest.
const maxListed = 48

// levels notes the way down the tree of a listener's filter chains. A nil one notes nothing.
type levels struct {
	steps *[]Step
	seen  *Seen
	x     *chainIndex
	node  subtree // that is looked up next
	alive []bool  // by chain: still below the node
}

func (r *levels) start(x *chainIndex) {
	if r == nil {
		return
	}
	r.x, r.node = x, x.ports
	r.alive = make([]bool, len(x.chains))
	x.ports.collect(func(c int) { r.alive[c] = true })
}

// port, prefix and text note what was chosen at a level, if something was, and return ok.
func (r *levels) port(l Level, p uint16, ok bool, next subtree) bool {
	if r != nil {
		r.note(l, portText(p), ok, next)
	}
	return ok
}

func (r *levels) prefix(l Level, p netip.Prefix, ok bool, next subtree) bool {
	if r != nil {
		r.note(l, prefixText(p), ok, next)
	}
	return ok
}

func (r *levels) text(l Level, s string, ok bool, next subtree) bool {
	if r != nil {
		r.note(l, valueText(s), ok, next)
	}
	return ok
}

// last is port of the last level, below which there is a chain.
func (r *levels) last(p uint32, ok bool, chain int) bool {
	if r != nil {
		r.note(LevelSourcePort, portText(uint16(p)), ok, oneChain(chain))
	}
	return ok
}

// oneChain is a chain as the node below the last level.
type oneChain int

func (l oneChain) collect(fn func(int)) { fn(int(l)) }
func (l oneChain) values() []string     { return nil }

// note adds a step. Levels at which no chain asks for anything are passed over: there is nothing to learn from them.
func (r *levels) note(l Level, choice string, ok bool, next subtree) {
	step := Step{Level: l, Input: levelInput(l, r.seen), Candidates: r.node.values()}
	if ok {
		step.Choice = choice
	}
	if more := len(step.Candidates) - maxListed; more > 0 {
		step.Candidates = step.Candidates[:maxListed]
		step.More = more
	}
	stay := make([]bool, len(r.alive))
	if ok {
		next.collect(func(c int) { stay[c] = true })
	}
	for c, was := range r.alive {
		if !was || stay[c] {
			continue
		}
		if len(step.Eliminated) == maxListed {
			step.More++
			continue
		}
		step.Eliminated = append(step.Eliminated, Eliminated{Name: ChainName(r.x.chains[c], c), Why: whyNot(l, r.x.chains[c].GetFilterChainMatch(), r.seen, step.Choice)})
	}
	if ip, is := r.node.(interface{ ambiguous() (netip.Prefix, bool) }); is {
		if p, both := ip.ambiguous(); both {
			step.Note = fmt.Sprintf("chains with %s stand beside chains without a prefix: Envoy does not define which of them it finds", p)
		}
	}
	r.node, r.alive = next, stay
	if len(step.Candidates) == 1 && step.Candidates[0] == anyValue {
		return
	}
	*r.steps = append(*r.steps, step)
}

// chainName is the name of a chain, or its place in the list.
func ChainName(c *listenerv3.FilterChain, i int) string {
	if c.GetName() != "" {
		return c.GetName()
	}
	return fmt.Sprintf("#%d", i)
}

// whyNot says why a chain fell at a level where choice was taken, "" for nothing.
func whyNot(l Level, m *listenerv3.FilterChainMatch, s *Seen, choice string) string {
	wants := levelWants(l, m)
	if !levelFits(l, m, s) {
		return "wants " + strings.Join(wants[:min(len(wants), 8)], ", ")
	}
	own := anyValue
	if len(wants) > 0 {
		own = strings.Join(wants[:min(len(wants), 8)], ", ")
	}
	if l == LevelApplicationProtocol && choice != anyValue {
		return fmt.Sprintf("fits with %s, but the client prefers %s, which is final", own, choice)
	}
	return fmt.Sprintf("fits with %s, but %s is more specific and final", own, choice)
}

// levelInput is what is looked up at a level.
func levelInput(l Level, s *Seen) string {
	switch l {
	case LevelDestinationPort:
		return portText(s.Dst.Port())
	case LevelDestinationIP:
		return addrText(s.Dst.Addr())
	case LevelServerName:
		return s.ServerName
	case LevelTransportProtocol:
		return s.Transport
	case LevelApplicationProtocol:
		return strings.Join(s.Protocols, ",")
	case LevelDirectSourceIP:
		return addrText(s.Direct.Addr())
	case LevelSourceType:
		return s.sourceType()
	case LevelSourceIP:
		return addrText(s.Src.Addr())
	case LevelSourcePort:
		return portText(s.Src.Port())
	}
	return ""
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// levelWants lists what a match asks for at a level, nothing where it asks for nothing.
func levelWants(l Level, m *listenerv3.FilterChainMatch) []string {
	switch l {
	case LevelDestinationPort:
		if p := m.GetDestinationPort(); p != nil {
			return []string{portText(uint16(p.GetValue()))}
		}
	case LevelDestinationIP:
		return texts(parseRanges(m.GetPrefixRanges()), prefixText)
	case LevelServerName:
		return m.GetServerNames()
	case LevelTransportProtocol:
		if t := m.GetTransportProtocol(); t != "" {
			return []string{t}
		}
	case LevelApplicationProtocol:
		return m.GetApplicationProtocols()
	case LevelDirectSourceIP:
		return texts(parseRanges(m.GetDirectSourcePrefixRanges()), prefixText)
	case LevelSourceType:
		if t := int(m.GetSourceType()); t > 0 && t < len(sourceTypeNames) {
			return []string{sourceTypeNames[t]}
		}
	case LevelSourceIP:
		return texts(parseRanges(m.GetSourcePrefixRanges()), prefixText)
	case LevelSourcePort:
		return texts(m.GetSourcePorts(), func(p uint32) string { return portText(uint16(p)) })
	}
	return nil
}

// levelFits reports whether what a match asks for at a level holds of a connection, taken by itself.
func levelFits(l Level, m *listenerv3.FilterChainMatch, s *Seen) bool {
	switch l {
	case LevelDestinationPort:
		return m.GetDestinationPort() == nil || uint16(m.GetDestinationPort().GetValue()) == s.Dst.Port()
	case LevelDestinationIP:
		return contains(m.GetPrefixRanges(), s.Dst.Addr())
	case LevelServerName:
		return len(m.GetServerNames()) == 0 || slices.ContainsFunc(m.GetServerNames(), func(n string) bool { return nameFits(nameKey(n), s.ServerName) })
	case LevelTransportProtocol:
		return m.GetTransportProtocol() == "" || m.GetTransportProtocol() == s.Transport
	case LevelApplicationProtocol:
		return len(m.GetApplicationProtocols()) == 0 || slices.ContainsFunc(m.GetApplicationProtocols(), func(p string) bool { return slices.Contains(s.Protocols, p) })
	case LevelDirectSourceIP:
		return contains(m.GetDirectSourcePrefixRanges(), s.Direct.Addr())
	case LevelSourceType:
		t := int(m.GetSourceType())
		return t == 0 || t < len(sourceTypeNames) && t > 0 && sourceTypeNames[t] == s.sourceType()
	case LevelSourceIP:
		return contains(m.GetSourcePrefixRanges(), s.Src.Addr())
	case LevelSourcePort:
		return len(m.GetSourcePorts()) == 0 || slices.Contains(m.GetSourcePorts(), uint32(s.Src.Port()))
	}
	return true
}

// nameFits reports whether the key of a server name, an exact name or a suffix, admits a name.
func nameFits(key, name string) bool {
	if key == name || key == "" {
		return true
	}
	fits := false
	wildcardKeys(name, func(k string) bool {
		fits = k == key
		return !fits
	})
	return fits
}

// leafText and namesText describe a combination of values for messages.
func leafText(port uint16, p netip.Prefix) string {
	return fmt.Sprintf("destination port %s, prefix %s", portText(port), prefixText(p))
}

func namesText(before, name, transport, alpn string) string {
	return fmt.Sprintf("%s, server name %s, transport protocol %s, application protocol %s", before, clip.Value(valueText(name)), valueText(transport), valueText(alpn))
}
