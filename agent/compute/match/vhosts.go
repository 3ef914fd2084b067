package match

import (
	"fmt"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
)

// hostIndex finds the virtual host of a request: the exact domain, else the longest suffix
// wildcard, else the longest prefix wildcard, else "*" (RouteMatcher).
type hostIndex struct {
	exact              map[string]int // by domain in lower case
	suffixes, prefixes map[string]int // without the star
	suffixLengths      []int          // used lengths, longest first
	prefixLengths      []int
	any                int // or NoIndex
	Conflicts          []domainConflict
}

// domainConflict is a duplicate domain. Envoy rejects the routes.
type domainConflict struct {
	Domain         string
	First, Second  int // virtual hosts
	SecondOfDomain int // index in the second host's domains
}

func IndexHosts(hosts []*routev3.VirtualHost) *hostIndex {
	x := &hostIndex{exact: map[string]int{}, suffixes: map[string]int{}, prefixes: map[string]int{}, any: NoIndex}
	for i, h := range hosts {
		for j, d := range h.GetDomains() {
			domain := LowerASCII(d)
			put := func(m map[string]int, key string) bool {
				first, twice := m[key]
				if twice {
					x.Conflicts = append(x.Conflicts, domainConflict{d, first, i, j})
				} else {
					m[key] = i
				}
				return !twice
			}
			switch {
			case domain == "*" && x.any != NoIndex:
				x.Conflicts = append(x.Conflicts, domainConflict{d, x.any, i, j})
			case domain == "*":
				x.any = i
			case strings.HasPrefix(domain, "*"):
				if put(x.suffixes, domain[1:]) {
					x.suffixLengths = addLength(x.suffixLengths, len(domain)-1)
				}
			case strings.HasSuffix(domain, "*"):
				if put(x.prefixes, domain[:len(domain)-1]) {
					x.prefixLengths = addLength(x.prefixLengths, len(domain)-1)
				}
			default:
				put(x.exact, domain)
			}
		}
	}
	return x
}

// addLength inserts a length into a list that is sorted longest first.
func addLength(lengths []int, n int) []int {
	i, found := slices.BinarySearchFunc(lengths, n, func(a, b int) int { return b - a })
	if found {
		return lengths
	}
	return slices.Insert(lengths, i, n)
}

// find returns the index of the virtual host and the matching domain, or NoIndex.
func (x *hostIndex) find(host string) (int, string) {
	if len(x.exact) > 0 || len(x.suffixes) > 0 || len(x.prefixes) > 0 {
		if host == "" {
			return NoIndex, ""
		}
		host = LowerASCII(host)
		if i, ok := x.exact[host]; ok {
			return i, host
		}
		// A wildcard matches at least one byte.
		for _, n := range x.suffixLengths {
			if n < len(host) {
				if i, ok := x.suffixes[host[len(host)-n:]]; ok {
					return i, "*" + host[len(host)-n:]
				}
			}
		}
		for _, n := range x.prefixLengths {
			if n < len(host) {
				if i, ok := x.prefixes[host[:n]]; ok {
					return i, host[:n] + "*"
				}
			}
		}
	}
	if x.any != NoIndex {
		return x.any, "*"
	}
	return NoIndex, ""
}

// domainFits reports whether a single domain matches a host.
func domainFits(domain, host string) bool {
	domain, host = LowerASCII(domain), LowerASCII(host)
	switch {
	case domain == "*":
		return true
	case strings.HasPrefix(domain, "*"):
		return len(host) >= len(domain) && strings.HasSuffix(host, domain[1:])
	case strings.HasSuffix(domain, "*"):
		return len(host) >= len(domain) && strings.HasPrefix(host, domain[:len(domain)-1])
	}
	return domain == host
}

// hostStep returns the step for the choice of a virtual host.
func hostStep(hosts []*routev3.VirtualHost, host string, chosen int, domain string) Step {
	step := Step{Level: LevelVirtualHost, Input: host}
	for i, h := range hosts {
		if i == chosen {
			step.Choice = h.GetName()
			step.note("by domain %s", clip.Value(domain))
			continue
		}
		if len(step.Eliminated) == maxListed {
			step.More++
			continue
		}
		why := "wants " + clip.Value(strings.Join(h.GetDomains()[:min(len(h.GetDomains()), 8)], ", "))
		if j := slices.IndexFunc(h.GetDomains(), func(d string) bool { return domainFits(d, host) }); j >= 0 {
			why = fmt.Sprintf("fits with %s, but %s is more specific and final",
				clip.Value(h.GetDomains()[j]), clip.Value(domain))
		}
		step.Eliminated = append(step.Eliminated, Eliminated{Name: h.GetName(), Why: why})
	}
	return step
}
