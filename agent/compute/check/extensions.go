package check

import (
	_ "embed"
	"math/bits"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nearside-mesh/nearside/agent/compute/substitution"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

//go:embed extensions.txt
var extensionText string

// extension is a config type that Envoys know in a category.
type extension struct {
	category string
	name     protoreflect.FullName
	since    uint32 // minor version of the first Envoy 1.x that has it; 0: all supported ones
	gone     bool   // Envoy 1.39 removed it
	listed   bool   // Envoys list it in their Node
}

// extensionList is the content of extensions.txt, and the features of formats.
var extensionList = append(readExtensions(extensionText), formatFeatures()...)

// formatFeatures returns the operators of formats, and their parts, that not all Envoys have.
func formatFeatures() (out []extension) {
	for _, f := range substitution.Features() {
		out = append(out, extension{category: "command of formats", name: protoreflect.FullName(f.Name), since: f.Since})
	}
	return out
}

// versioned holds, by name, the indexes of the extensions that depend only on Envoy's version.
var versioned = func() map[string]int {
	out := map[string]int{}
	for i, e := range extensionList {
		if !e.listed {
			out[string(e.name)] = i
		}
	}
	return out
}()

func readExtensions(text string) []extension {
	var out []extension
	category := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " "):
			since := uint32(0)
			name, newer := strings.CutPrefix(strings.TrimSpace(line), "+")
			if newer {
				since = 37
			}
			name, gone := strings.CutPrefix(name, "-")
			out = append(out, extension{strings.TrimPrefix(category, "@"), protoreflect.FullName(name), since, gone,
				!strings.HasPrefix(category, "@")})
		default:
			category = line
		}
	}
	return out
}

// uses is the set of extensions in a resource, as indexes in extensionList.
type uses [8]uint64

func (u *uses) add(i int) { u[i/64] |= 1 << (i % 64) }
func (u *uses) addAll(o *uses) {
	for i := range u {
		u[i] |= o[i]
	}
}

// first returns the first extension that is in both sets, or -1.
func (u *uses) first(o *uses) int {
	for i := range u {
		if both := u[i] & o[i]; both != 0 {
			return i*64 + bits.TrailingZeros64(both)
		}
	}
	return -1
}

// missing returns the extensions that Envoys of a build lack, by the build's own list or else by
// its version.
func missing(b *finding.Build) *uses {
	out := &uses{}
	if b == nil {
		return out
	}
	for i, e := range extensionList {
		switch {
		case b.Extensions != nil && e.listed:
			if !b.Has(e.category, string(e.name)) {
				out.add(i)
			}
		case e.since > 0 && b.Version.Below(1, e.since), e.gone && b.Version.From(1, 39):
			out.add(i)
		}
	}
	return out
}

// typeNames returns the types of a category as strings.
func typeNames(category string) []string {
	var out []string
	for _, e := range extensionList {
		if e.category == category {
			out = append(out, string(e.name))
		}
	}
	return out
}

// types returns the types of some categories with their indexes in extensionList.
func types(categories []string) map[protoreflect.FullName]int {
	out := map[protoreflect.FullName]int{}
	for i, e := range extensionList {
		if slices.Contains(categories, e.category) {
			out[e.name] = i
		}
	}
	return out
}
