package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Validate reports what is wrong with the config as a whole: what [Load] cannot see at a single key. A config that
// was put together by hand needs absolute paths.
func (c *Config) Validate() resource.Faults {
	var out resource.Faults
	fault := func(key, format string, args ...any) {
		out = append(out, resource.Fault{Field: key, Reason: fmt.Sprintf(format, args...)})
	}
	for _, f := range c.fields() {
		if !f.has("path") {
			continue
		}
		switch p := f.at.String(); {
		case p == "" && f.has("required"):
			fault(f.path, "is empty; give a path")
		case p != "" && p[0] != '/':
			fault(f.path, "%.64q is not an absolute path", p)
		case f.tag.Get("check") == "socket" && len(p) > MaxSocketBytes:
			fault(f.path, "%s has %d bytes, and the system takes at most %d for a socket; set a shorter path or a shorter paths.run", p, len(p), MaxSocketBytes)
		}
	}
	if c.API.Socket.Path == c.XDS.Socket.Path {
		fault("xds.socket.path", "%s is that of api.socket.path too; give each its own", c.XDS.Socket.Path)
	}
	if c.API.TCP != "" && c.API.TCP == c.XDS.TCP && !strings.HasSuffix(c.API.TCP, ":0") {
		fault("xds.tcp", "%q is that of api.tcp too; give each its own", c.XDS.TCP)
	}
	if c.Trust.Mode != "off" && c.Trust.Mode != "" && c.Trust.File == "" {
		fault("trust.file", "is empty, and trust.mode %s needs it; name the trust file", c.Trust.Mode)
	}
	c.checkRanges(fault)
	if c.Gossip.Bind == "" && len(c.Gossip.Join) > 0 {
		fault("gossip.join", "names members, and gossip.bind is empty; set the address to join from")
	}
	return out
}

// checkRanges checks the ranges of virtual addresses together. A family that is not written has its default.
func (c *Config) checkRanges(fault func(key, format string, args ...any)) {
	type keyed struct {
		key string
		netip.Prefix
	}
	var all []keyed
	for _, f := range c.fields() {
		list, ok := f.at.Interface().([]string)
		if !ok || f.tag.Get("check") != "range" {
			continue
		}
		var own []netip.Prefix
		for i, s := range append(slices.Clone(list), strings.Split(f.tag.Get("default"), ",")...) {
			p, err := netip.ParsePrefix(s)
			same := slices.IndexFunc(own, func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() })
			switch {
			case err != nil:
			case same < 0:
				own = append(own, p)
				for _, o := range all {
					if o.Overlaps(p) {
						fault(f.path, "%s overlaps %s of %s; give each kind of service ranges of its own", p, o.Prefix, o.key)
					}
				}
			case i < len(list):
				fault(f.path, "%s and %s are of one family; give one range of each", own[same], p)
			}
		}
		for _, p := range own {
			all = append(all, keyed{f.path, p})
		}
	}
}
