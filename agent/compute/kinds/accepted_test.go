package kinds_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/schema"
)

// unknownName is a field of no kind, and similar to none.
const unknownName = "qqqqqqqqqqqq"

// aroundSpec are the fields of every document.
var aroundSpec = []string{"type", "mesh", "name", "labels", "creationTime", "modificationTime"}

// comparison compares the schema of a kind with its decoder.
type comparison struct {
	t       *testing.T
	d       resource.Descriptor
	objects int
}

// walk compares every mapping below a schema.
func (c *comparison) walk(s map[string]any, path string) {
	for _, form := range schema.Forms(s) {
		c.walk(form, path)
	}
	if items, ok := s["items"].(map[string]any); ok {
		c.walk(items, path+"[]")
	}
	if values, ok := s["additionalProperties"].(map[string]any); ok {
		c.walk(values, path+"{}")
	}
	props, ok := s["properties"].(map[string]any)
	if !ok {
		return
	}
	c.compare(slices.Sorted(maps.Keys(props)), path)
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if p, ok := props[name].(map[string]any); ok {
			c.walk(p, strings.TrimPrefix(path+"."+name, "."))
		}
	}
}

// compare compares the fields of a mapping in the schema with those that the decoder names when it
// refuses an unknown one.
func (c *comparison) compare(fields []string, path string) {
	c.objects++
	at := strings.TrimPrefix(path+"."+unknownName, ".")
	doc, field := documentAt(&c.d, at, &strict.Node{Kind: strict.Int, Text: "1"})
	_, faults := kinds.Registry().Decode("", doc)
	i := slices.IndexFunc(faults, func(f resource.Fault) bool { return f.Field == field })
	if i < 0 {
		// Formats of access logs are checked after the type of their backend, which is missing.
		if _, below, found := strings.Cut(path, "format"); !found || below != "" && below != ".json[]" || len(faults) == 0 {
			c.t.Errorf("%s: an unknown field at %q is accepted: %s", c.d.Kind, path, doc)
		}
		return
	}
	_, list, found := strings.Cut(faults[i].Reason, "known here: ")
	if !found {
		return
	}
	known := strings.Split(list, ", ")
	slices.Sort(known)
	if p, ok := c.d.New().(*resource.Policy); ok && p.Shape.Inline && (path == "spec.to[]" || path == "spec.from[]") {
		known = append(known, "targetRef") // its fields are decoded apart from those of the conf
	} else if ok && path == "spec.rules[]" && !p.Shape.RuleMatches {
		known = slices.DeleteFunc(known, func(name string) bool { return name == "matches" }) // refused with a reason
	}
	around := func(name string) bool { return path == "" && slices.Contains(aroundSpec, name) }
	known, fields = slices.DeleteFunc(known, around), slices.DeleteFunc(slices.Clone(fields), around)
	slices.Sort(known)
	if !slices.Equal(known, fields) {
		c.t.Errorf("%s %s: the decoder knows %v, the schema %v", c.d.Kind, path, known, fields)
	}
}

// TestSchemaListsWhatIsAccepted compares the schema of every kind with its decoder, in every
// mapping: both have the same fields.
func TestSchemaListsWhatIsAccepted(t *testing.T) {
	objects := 0
	for _, d := range kinds.Registry().All() {
		c := comparison{t: t, d: d}
		c.walk(kinds.Schema(d), "")
		if c.objects < 2 && d.Kind != "Workload" { // whose spec is empty
			t.Errorf("%s: only %d mappings were compared", d.Kind, c.objects)
		}
		objects += c.objects
	}
	t.Logf("%d mappings", objects)
}
