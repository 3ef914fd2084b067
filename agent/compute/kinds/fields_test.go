package kinds_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/schema"
)

// fieldFact is a row of the table of Kuma's fields.
type fieldFact struct {
	kind, path, typ string
	enum            []string
}

// fieldTable is the table of the fields of the version that the agent names.
const fieldTable = "testdata/kuma-" + resource.SchemaVersion + "-fields.tsv"

func fieldFacts(t *testing.T) []fieldFact {
	t.Helper()
	text, err := os.ReadFile(fieldTable)
	if err != nil {
		t.Fatalf("the agent names version %s, whose fields no table lists: %v", resource.SchemaVersion, err)
	}
	var out []fieldFact
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		row := append(strings.Split(strings.TrimSuffix(line, "\n"), "\t"), "", "", "")
		f := fieldFact{kind: row[0], path: row[1], typ: row[2]}
		if row[3] != "" {
			f.enum = strings.Split(row[3], ",")
		}
		out = append(out, f)
	}
	return out
}

// unserved is a row of the table of docs/resources.md.
type unserved struct {
	kind, path, reason string // an empty path means the whole kind
	used               bool
}

// covers reports whether a row is about a field or a field that contains it.
func (u *unserved) covers(f *fieldFact) bool {
	rest, within := strings.CutPrefix(f.path, u.path)
	return u.kind == f.kind && within && (u.path == "" || rest == "" || strings.HasPrefix(rest, ".") ||
		strings.HasPrefix(rest, "[]") || strings.HasPrefix(rest, "{}"))
}

// unservedFields reads the table of fields without effect from the documentation.
func unservedFields(t *testing.T) []unserved {
	t.Helper()
	page, err := os.ReadFile("../../../docs/resources.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n### Fields without effect\n")
	if !found {
		t.Fatal("docs/resources.md has no section on fields without effect")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var out []unserved
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.Contains(cells[1], "---") || strings.TrimSpace(cells[1]) == "kind" {
			continue
		}
		trimmed := func(i int) string { return strings.Trim(strings.TrimSpace(cells[i]), "`") }
		for kind := range strings.SplitSeq(trimmed(1), ", ") {
			for path := range strings.SplitSeq(trimmed(2), "`, `") {
				out = append(out, unserved{kind: strings.Trim(kind, "`"), path: path, reason: trimmed(3)})
			}
		}
	}
	return out
}

// document returns a document with one field of a kind, and the path of the field in faults.
func document(d *resource.Descriptor, f *fieldFact, value *strict.Node) (doc []byte, at string) {
	path := f.path
	if !d.SpecAtTop {
		path = "spec." + path
	}
	return documentAt(d, path, value)
}

// documentAt is like document for a path in the whole document.
func documentAt(d *resource.Descriptor, path string, value *strict.Node) (doc []byte, at string) {
	text := func(s string) *strict.Node { return &strict.Node{Kind: strict.String, Text: s} }
	steps := strings.Split(path, ".")
	for i := len(steps) - 1; i >= 0; i-- {
		name, nested := steps[i], true
		for nested {
			if name, nested = strings.CutSuffix(name, "[]"); nested {
				value = &strict.Node{Kind: strict.List, Items: []*strict.Node{value}}
			} else if name, nested = strings.CutSuffix(name, "{}"); nested {
				value = &strict.Node{Kind: strict.Mapping, Pairs: []strict.Pair{{Key: "key", Value: value}}}
			}
		}
		value = &strict.Node{Kind: strict.Mapping, Pairs: []strict.Pair{{Key: name, Value: value}}}
	}
	around := []strict.Pair{{Key: "type", Value: text(d.Kind)}, {Key: "name", Value: text("x")}}
	value.Pairs = append(around, value.Pairs...)
	return value.JSON(), strings.NewReplacer("[]", "[0]", "{}", `["key"]`).Replace(path)
}

// example returns a value of a type.
func example(typ string) *strict.Node {
	switch typ {
	case "integer", "number":
		return &strict.Node{Kind: strict.Int, Text: "1"}
	case "boolean":
		return &strict.Node{Kind: strict.Bool, Text: "true"}
	case "array":
		return &strict.Node{Kind: strict.List}
	case "object":
		return &strict.Node{Kind: strict.Mapping}
	}
	return &strict.Node{Kind: strict.String, Text: "x"}
}

// refusal returns the fault with which a kind refuses a field, its type, or a value of its enum; ""
// if it accepts them.
func refusal(d *resource.Descriptor, f *fieldFact) string {
	doc, _ := document(d, f, example(f.typ))
	_, faults := kinds.Registry().Decode("", doc)
	for _, x := range faults {
		for _, sign := range []string{"unknown field", "this kind has no", "is not in effect"} {
			if strings.Contains(x.Reason, sign) {
				return x.String()
			}
		}
		if f.typ != "" && strings.Contains(x.Reason, " is expected") {
			return x.String()
		}
	}
	if strings.HasSuffix(f.path, "argetRef.kind") || strings.HasSuffix(f.path, "ackendRef.kind") ||
		strings.HasSuffix(f.path, "ackendRefs[].kind") {
		return "" // the CRD lists the kinds of all positions
	}
	for _, value := range f.enum {
		doc, at := document(d, f, &strict.Node{Kind: strict.String, Text: value})
		if f.typ == "integer" {
			doc, at = document(d, f, &strict.Node{Kind: strict.Int, Text: value})
		}
		_, faults := kinds.Registry().Decode("", doc)
		for _, x := range faults {
			if x.Field == at && strings.Contains(x.Reason, "is not allowed: ") {
				return x.String()
			}
		}
	}
	return ""
}

// TestFields compares the kinds with the table of Kuma's fields: each field is accepted by the
// decoder with its type and the values of its enum and is part of the schema, or
// docs/resources.md lists it with a reason.
func TestFields(t *testing.T) {
	facts, without := fieldFacts(t), unservedFields(t)
	listed := map[string]map[string]bool{}
	for _, d := range kinds.Registry().All() {
		listed[d.Kind] = map[string]bool{}
		for _, f := range schema.Fields(kinds.Schema(d)) {
			listed[d.Kind][strings.TrimPrefix(f.Path, "spec.")] = true
		}
	}
	var served, excused, missing int
	for i := range facts {
		f := &facts[i]
		if j := slices.IndexFunc(without, func(u unserved) bool { return u.covers(f) }); j >= 0 {
			without[j].used = true
			excused++
			continue
		}
		d, known := kinds.Registry().Lookup(f.kind)
		if !known {
			missing++
			t.Errorf("%s: unknown kind (%s)", f.kind, f.path)
			continue
		}
		name := strings.TrimSuffix(strings.TrimSuffix(f.path, "[]"), "{}")
		if fault := refusal(&d, f); fault != "" {
			missing++
			t.Errorf("%s %s: %s", f.kind, f.path, fault)
		} else if !listed[f.kind][strings.ReplaceAll(name, "{}", ".KEY")] {
			missing++
			t.Errorf("%s %s: the schema does not list this field", f.kind, f.path)
		} else {
			served++
		}
	}
	for _, u := range without {
		if !u.used || u.reason == "" {
			t.Errorf("docs/resources.md: no field %s %s, or no reason: remove the row, or complete it", u.kind, u.path)
		}
	}
	t.Logf("Kuma %s: %d fields, %d served, %d without effect with a reason, %d missing", resource.SchemaVersion,
		len(facts), served, excused, missing)
}
