package finding

import (
	"fmt"
	"strconv"
	"strings"
)

// Build describes an Envoy build, as reported in its Node message. It is immutable, and Envoys of
// the same build may share it.
type Build struct {
	Version Version
	// Extensions holds the config types that are compiled in, by category, without the prefix of
	// type URLs; nil if the Envoy does not report them.
	Extensions map[string]map[string]bool
}

// Has reports whether an Envoy has an extension. An Envoy that does not list its extensions counts
// as having all.
func (b *Build) Has(category, typeName string) bool {
	return b == nil || b.Extensions == nil || b.Extensions[category][typeName]
}

// From reports whether an Envoy is known to have at least the given version.
func (b *Build) From(major, minor uint32) bool { return b != nil && b.Version.From(major, minor) }

// Lists reports whether an Envoy lists an extension in any category.
func (b *Build) Lists(typeName string) bool {
	if b == nil {
		return false
	}
	for _, types := range b.Extensions {
		if types[typeName] {
			return true
		}
	}
	return false
}

// Version is the version of an Envoy. The zero value means unknown.
type Version struct{ Major, Minor, Patch uint32 }

// ParseVersion parses a version such as 1.36.2 or 1.36.2-dev. It returns the zero value if s is not
// a version.
func ParseVersion(s string) Version {
	s, _, _ = strings.Cut(s, "-")
	parts := strings.Split(s, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return Version{}
	}
	var n [3]uint32
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 32)
		if err != nil {
			return Version{}
		}
		n[i] = uint32(v)
	}
	return Version{n[0], n[1], n[2]}
}

// Known reports whether the version is known.
func (v Version) Known() bool { return v != Version{} }

// Below reports whether a version is known and lower than the given one.
func (v Version) Below(major, minor uint32) bool {
	return v.Known() && (v.Major < major || v.Major == major && v.Minor < minor)
}

// From reports whether a version is known and at least the given one.
func (v Version) From(major, minor uint32) bool { return v.Known() && !v.Below(major, minor) }

// String formats the version as 1.36.2.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }
