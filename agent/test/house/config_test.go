package house

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/config"
)

// keyRow is a row of the table of keys: key, default, meaning.
var keyRow = regexp.MustCompile("(?m)^\\| `([a-z][A-Za-z.]+)` \\| (.+?) \\| (.+?) \\|$")

// TestConfigReference holds the table of docs/config.md to the keys of the agent: all of them in
// their order, and for each the default, the meaning, and whether a change takes effect without a
// restart.
func TestConfigReference(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := keyRow.FindAllStringSubmatch(string(text), -1)
	keys := config.Keys()
	plain := strings.NewReplacer("`", "")
	for i, k := range keys {
		if i >= len(rows) || rows[i][1] != k.Path {
			t.Fatalf("docs/config.md: row %d of the table of keys is not %s: add, remove or move a row", i+1, k.Path)
		}
		def, doc := "`"+k.Default+"`", k.Doc
		if k.Path == "node.name" {
			def = "host name" // the default of the machine that the test runs on
		}
		if k.Live {
			doc += " *live*"
		}
		if rows[i][2] != def {
			t.Errorf("docs/config.md: the default of %s is %s, not %s", k.Path, def, rows[i][2])
		}
		if plain.Replace(rows[i][3]) != doc {
			t.Errorf("docs/config.md: %s: %q differs from what the agent says of it, %q", k.Path, rows[i][3], doc)
		}
	}
	if len(rows) != len(keys) {
		t.Errorf("docs/config.md: %s is no key", rows[len(keys)][1])
	}
}

// itemRow is a row of a table of the keys of items: key, meaning.
var itemRow = regexp.MustCompile("(?m)^\\| `([a-z][A-Za-z.]*\\[\\][A-Za-z.\\[\\]]*)` \\| (.+?) \\|$")

// TestConfigItems holds the tables of docs/config.md about the items of lists to their keys, list
// by list in the order of the table of keys.
func TestConfigItems(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := itemRow.FindAllStringSubmatch(string(text), -1)
	plain := strings.NewReplacer("`", "")
	for _, list := range config.Keys() {
		for _, k := range list.Items {
			if len(rows) == 0 || rows[0][1] != k.Path {
				t.Fatalf("docs/config.md: the next row about items is not %s: add, remove or move a row", k.Path)
			}
			if plain.Replace(rows[0][2]) != k.Doc {
				t.Errorf("docs/config.md: %s: %q differs from what the agent says of it, %q", k.Path, rows[0][2], k.Doc)
			}
			rows = rows[1:]
		}
	}
	if len(rows) > 0 {
		t.Errorf("docs/config.md: %s is no key of an item", rows[0][1])
	}
}

// TestConfigVariables holds every variable that a document names to a key, and every key's variable
// to the rule that docs/config.md states.
func TestConfigVariables(t *testing.T) {
	const short = "NEARSIDE_AUTO_REACHABLE_BACKENDS"
	known := map[string]bool{
		short: true,
		// Of the commands, not of the config.
		"NEARSIDE_SOCKET": true,
	}
	for _, k := range config.Keys() {
		if want := "NEARSIDE_" + strings.ToUpper(strings.ReplaceAll(k.Path, ".", "_")); k.Env != want {
			t.Errorf("the variable of %s is %s; by the rule in docs/config.md it is %s", k.Path, k.Env, want)
		}
		known[k.Env] = true
	}
	variable := regexp.MustCompile(`\bNEARSIDE_[A-Z_]*[A-Z]\b`)
	shown := map[string]bool{}
	for name, doc := range documents(t, os.DirFS(root)) {
		for _, v := range variable.FindAllString(doc, -1) {
			shown[v] = true
			if !known[v] {
				t.Errorf("%s: nothing reads %s", name, v)
			}
		}
	}
	for _, v := range []string{short, "NEARSIDE_SOCKET", "NEARSIDE_NODE_ZONE"} {
		if !shown[v] {
			t.Errorf("no document names %s", v)
		}
	}
}
