package house

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/host/config"
)

// isResource distinguishes resources from other YAML blocks.
var isResource = regexp.MustCompile(`(?m)^(type|apiVersion): `)

// hereDocument matches the input of a command in a console block.
var hereDocument = regexp.MustCompile(`(?s)<<'END'\n(.*?)\nEND\n`)

// fragments are YAML blocks that contain only a section of a document, by page and first line.
var fragments = map[string]string{
	"docs/decisions/0011-policies.md: from:                                            # of a policy for the whole " +
		"mesh": "items of a policy",
	"docs/reachability.md: kuma.io/reachable-backends: |":                "an annotation",
	"docs/csi.md: volumes:":                                              "a volume of a pod",
	"docs/inject.md: # kustomization.yaml: transformers: [inject.yaml]":  "a transformer of kustomize",
	"docs/alerts.md: rule_files: [/etc/prometheus/nearside-alerts.yaml]": "a config of Prometheus",
}

// TestBlocksOfDocuments checks that each YAML block and here document in the documents is a stream
// of valid resources, a valid config, or one of fragments, and that each JSON block is valid.
func TestBlocksOfDocuments(t *testing.T) {
	registry, docs := kinds.Registry(), documents(t, os.DirFS(root))
	resources, configs, found := 0, 0, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		for _, m := range fence.FindAllStringSubmatch(docs[name], -1) {
			first, _, _ := strings.Cut(m[2], "\n")
			switch at := name + ": " + first; {
			case m[1] == "json":
				if !json.Valid([]byte(m[2])) {
					t.Errorf("%s: this is no JSON:\n%s", name, m[2])
				}
			case m[1] == "console":
				for _, in := range hereDocument.FindAllStringSubmatch(m[2], -1) {
					if isResource.MatchString(in[1]) {
						rs, faults := registry.Decode(name, []byte(in[1]))
						for _, f := range faults {
							t.Errorf("%v, in the here document\n%s", f, in[1])
						}
						resources += len(rs)
					}
				}
			case m[1] != "yaml":
			case fragments[at] != "":
				found[at] = true
				if err := decodes(m[2]); err != nil {
					t.Errorf("%s: %v", at, err)
				}
			case isResource.MatchString(m[2]):
				rs, faults := registry.Decode(name, []byte(m[2]))
				for _, f := range faults {
					t.Errorf("%v, in the block\n%s", f, m[2])
				}
				resources += len(rs)
			default:
				for i, doc := range strings.Split(m[2], "\n---\n") {
					configs++
					if err := takes(t, doc); err != nil {
						t.Errorf("%s: document %s of this block is no resource, and an agent does not take it as its config: %v\n%s",
							name, strconv.Itoa(i+1), err, doc)
					}
				}
			}
		}
	}
	if resources < 70 || configs < 5 {
		t.Errorf("only %d resources and %d configs found in the documents", resources, configs)
	}
	for at := range fragments {
		if !found[at] {
			t.Errorf("%s: no document has this fragment any more", at)
		}
	}
}

// decodes checks that text is YAML.
func decodes(text string) error {
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// takes checks that an agent accepts a config.
func takes(t *testing.T, text string) error {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, faults := config.Load(config.LoadOptions{File: file, Hostname: "node-1"})
	if faults == nil {
		faults = agent.CheckConfig(cfg)
	}
	if faults == nil {
		return nil // return an untyped nil, because a nil list would be a non-nil error
	}
	return faults
}

// TestTutorialShowsTheDemo checks that docs/envoy.md contains exactly the steps of examples/demo
// that need an Envoy, with the same order and wording.
func TestTutorialShowsTheDemo(t *testing.T) {
	var said, shown []string
	for _, name := range []string{"envoy.go", "permission.go"} {
		text, err := os.ReadFile(root + "/examples/demo/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`step\("(.*)"\)`).FindAllStringSubmatch(string(text), -1) {
			said = append(said, m[1])
		}
	}
	page, err := os.ReadFile(root + "/docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^==> (.*)$`).FindAllStringSubmatch(string(page), -1) {
		shown = append(shown, m[1])
	}
	if len(said) < 5 || !slices.Equal(said, shown) {
		t.Errorf("the demo says\n%s\nand docs/envoy.md shows\n%s", strings.Join(said, "\n"), strings.Join(shown, "\n"))
	}
}
