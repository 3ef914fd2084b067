package finding

import (
	"fmt"
	"strconv"
	"strings"
)

// Build is what an Envoy says of itself in its Node message. Envoys of one build may share one; it
// is not changed.
type Build struct {
	Version Version
	// Extensions are the types of configs that it has compiled in, by category, without the prefix of
	// type URLs; nil where it does not say.
	Extensions map[string]map[string]bool
}

// Has reports whether an Envoy has an extension. One that does not list its extensions has all.
func (b *Build) Has(category, typeName string) bool {
	return b == nil || b.Extensions == nil || b.Extensions[category][typeName]
}

// From reports whether an Envoy is known to be of a version or of a newer one.
func (b *Build) From(major, minor uint32) bool { return b != nil && b.Version.From(major, minor) }

// Lists reports whether an Envoy names an extension of any category.
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

// Version is the version of an Envoy. The zero value is an unknown one.
type Version struct{ Major, Minor, Patch uint32 }

// ParseVersion reads a version such as 1.36.2 or 1.36.2-dev, the zero value for what is none.
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

// Below reports whether a version is known and below another one.
func (v Version) Below(major, minor uint32) bool {
	return v.Known() && (v.Major < major || v.Major == major && v.Minor < minor)
}

// From reports whether a version is known and not below another one.
func (v Version) From(major, minor uint32) bool { return v.Known() && !v.Below(major, minor) }

// String writes the version as 1.36.2.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }
