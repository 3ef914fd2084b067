package config

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Bounds of the ranges of virtual addresses, as lengths of prefixes.
const (
	minVIPBits4, maxVIPBits4 = 4, 28
	minVIPBits6, maxVIPBits6 = 32, 120
)

func (c *VIPsConfig) field(key, what string, p *[]string) field {
	return field{path: "vips." + key, doc: fmt.Sprintf("Ranges of the virtual addresses of %s: an IPv4 prefix, an IPv6 prefix, or both.", what),
		value: textList{p: p, check: checkVIPRange, max: 2}}
}

// checkVIPRange checks one range.
func checkVIPRange(s string) string {
	p, err := netip.ParsePrefix(s)
	low, high := minVIPBits4, maxVIPBits4
	if err == nil && p.Addr().Is6() {
		low, high = minVIPBits6, maxVIPBits6
	}
	switch {
	case err != nil || p.Addr().Is4In6():
		return fmt.Sprintf("%q is not a range of addresses; write it like 240.0.0.0/8 or fd00:fd00::/64", clip.Value(s))
	case p != p.Masked():
		return fmt.Sprintf("%q has bits behind its length of %d; write %s", clip.Value(s), p.Bits(), p.Masked())
	case p.Bits() < low || p.Bits() > high:
		return fmt.Sprintf("%q has the length /%d; want one from /%d to /%d", clip.Value(s), p.Bits(), low, high)
	}
	for _, never := range [...]string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "::/96", "fe80::/10", "ff00::/8"} {
		if n := netip.MustParsePrefix(never); n.Overlaps(p) {
			return fmt.Sprintf("%q overlaps %s, where no service can listen; take another range", clip.Value(s), n)
		}
	}
	return ""
}

// ranges returns the ranges with their keys, those that are not written as they are by default.
func (c *VIPsConfig) ranges() (out mesh.VIPRanges, all []vipRange) {
	out = mesh.DefaultVIPRanges()
	for _, k := range [...]struct {
		key  string
		list []string
		to   *mesh.VIPRange
	}{
		{"vips.tag", c.Tag, &out.Tag}, {"vips.meshService", c.MeshService, &out.MeshService},
		{"vips.meshExternalService", c.MeshExternalService, &out.MeshExternalService},
		{"vips.meshMultiZoneService", c.MeshMultiZoneService, &out.MeshMultiZoneService},
	} {
		for _, s := range k.list {
			if p, err := netip.ParsePrefix(s); err == nil && p.Addr().Is4() {
				k.to.V4 = p
			} else if err == nil {
				k.to.V6 = p
			}
		}
		all = append(all, vipRange{k.key, k.to.V4}, vipRange{k.key, k.to.V6})
	}
	return out, all
}

type vipRange struct {
	key    string
	prefix netip.Prefix
}

// faults are those of the ranges together.
func (c *VIPsConfig) faults() (out resource.Faults) {
	fault := func(key, format string, args ...any) {
		out = append(out, resource.Fault{Field: key, Reason: fmt.Sprintf(format, args...)})
	}
	_, all := c.ranges()
	for i, r := range all {
		for _, o := range all[:i] {
			if o.prefix.Overlaps(r.prefix) {
				fault(r.key, "%s overlaps %s of %s; give each kind of service ranges of its own", r.prefix, o.prefix, o.key)
			}
		}
	}
	for _, l := range [...]struct {
		key  string
		list []string
	}{{"vips.tag", c.Tag}, {"vips.meshService", c.MeshService}, {"vips.meshExternalService", c.MeshExternalService}, {"vips.meshMultiZoneService", c.MeshMultiZoneService}} {
		if len(l.list) != 2 {
			continue
		}
		a, err := netip.ParsePrefix(l.list[0])
		b, err2 := netip.ParsePrefix(l.list[1])
		if err == nil && err2 == nil && a.Addr().Is4() == b.Addr().Is4() {
			fault(l.key, "%s and %s are of one family; give one range of each", a, b)
		}
	}
	return out
}

// options are those that views are made with.
func (c *VIPsConfig) Options() mesh.VIPOptions {
	ranges, _ := c.ranges()
	return mesh.VIPOptions{
		Ranges: ranges, IPv6: c.Families == resource.IPFamilyDualStack, Hold: time.Duration(c.ReleaseAfter) * time.Second,
	}
}
