package names

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/dns/table"
)

// clusterDomain is the domain of Kubernetes. A generator with this suffix must not hide its names.
const clusterDomain = "cluster.local"

// own determines which suffixes the meshes own.
func (t *Table) own(meshes []Mesh) {
	owned := map[string]bool{}
	for _, s := range t.options.Suffixes {
		if name := fold(s); !owned[name] {
			owned[name] = true
			t.Suffixes = append(t.Suffixes, Suffix{Name: name, Origin: OriginConfig})
		}
	}
	seen := map[string]bool{}
	for i := range meshes {
		for r, spec := range resource.Specs[*resource.HostnameGenerator](meshes[i].View.Generators()) {
			name := generatedSuffix(spec.Template)
			if name == "" || owned[name] || seen[name] {
				continue
			}
			seen[name] = true
			x := Suffix{Name: name, Origin: OriginGenerator, Generator: r.Key}
			switch {
			case !t.options.Generators:
				x.Reason = "dns.generatorSuffixes is false"
			case !strings.Contains(name, "."):
				x.Reason = "a suffix of one label may be a domain of the internet: list it in dns.suffixes if it is yours"
			case name == clusterDomain || strings.HasSuffix(name, "."+clusterDomain):
				x.Reason = "Kubernetes uses this suffix for its names: list it in dns.suffixes if the names are yours"
			}
			if x.Reason != "" {
				t.Unowned = append(t.Unowned, x)
			} else {
				t.Suffixes = append(t.Suffixes, x)
			}
		}
	}
	byName := func(a, b Suffix) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.Generator.Compare(b.Generator))
	}
	slices.SortFunc(t.Suffixes, byName)
	slices.SortFunc(t.Unowned, byName)
	for _, p := range t.options.Ranges {
		for _, name := range table.ReverseSuffixes(p) {
			if !owned[name] {
				owned[name] = true
				t.Suffixes = append(t.Suffixes, Suffix{Name: name, Origin: OriginRange})
			}
		}
	}
}

// generatedSuffix returns the common suffix of all names of a template, starting at a whole label,
// or "".
func generatedSuffix(template string) string {
	parts, err := resource.ParseHostnameTemplate(template)
	if err != nil || len(parts) < 2 {
		return ""
	}
	_, suffix, _ := strings.Cut(parts[len(parts)-1].Literal, ".")
	return fold(suffix)
}

func fold(name string) string { return strings.ToLower(strings.Trim(name, ".")) }
