package house

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/config"
)

// keyRow matches a row of a table of keys: anchor, key, default, meaning. itemRow matches a row
// about list items: anchor, key, meaning.
var (
	keyRow  = regexp.MustCompile("(?m)^\\| <a id=\"(.+?)\"></a>`([a-z][A-Za-z.]+)` \\| (.+?) \\| (.+?) \\|$")
	itemRow = regexp.MustCompile("(?m)^\\| <a id=\"(.+?)\"></a>" +
		"`([a-z][A-Za-z.\\[\\]]*\\[\\][A-Za-z.\\[\\]]*)` \\| (.+?) \\|$")
)

const configPage = root + "/docs/config.md"

// checkRows compares the rows of docs/config.md with the wanted cells by anchor. UPDATE_GOLDEN=1
// rewrites rows that differ in more than backquotes.
func checkRows(t *testing.T, row *regexp.Regexp, want [][]string) {
	t.Helper()
	text, err := os.ReadFile(configPage)
	if err != nil {
		t.Fatal(err)
	}
	plain, page := strings.NewReplacer("`", ""), string(text)
	rows := row.FindAllStringSubmatch(page, -1)
	for i, w := range want {
		key := w[0]
		if i >= len(rows) || rows[i][2] != key {
			t.Fatalf("docs/config.md: row %d is not %s: add, remove, or move a row", i+1, key)
		}
		if anchor := strings.ReplaceAll(key, "[]", ""); rows[i][1] != anchor {
			t.Errorf("docs/config.md: the anchor of %s is %q, want %q", key, rows[i][1], anchor)
		}
		if plain.Replace(strings.Join(rows[i][3:], "|")) == plain.Replace(strings.Join(w[1:], "|")) {
			continue
		}
		if os.Getenv("UPDATE_GOLDEN") == "" {
			t.Errorf("docs/config.md: %s: %q, want %q", key, rows[i][3:], w[1:])
		}
		page = strings.Replace(page, rows[i][0], "| <a id=\""+rows[i][1]+"\"></a>`"+key+"` | "+
			strings.Join(w[1:], " | ")+" |", 1)
	}
	if len(rows) > len(want) {
		t.Errorf("docs/config.md: %s is not a key", rows[len(want)][2])
	}
	if page != string(text) && os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(configPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConfigReference compares the tables of docs/config.md with the keys of the agent. The tables
// must contain all keys in order, each with its anchor, default, meaning, and whether it can be
// reloaded without a restart.
func TestConfigReference(t *testing.T) {
	var want [][]string
	for _, k := range config.Keys() {
		def, doc := "`"+k.Default+"`", k.Doc
		if k.Path == "node.name" {
			def = "host name" // the default of the machine that the test runs on
		}
		if k.Live {
			doc += " *live*"
		}
		want = append(want, []string{k.Path, def, doc})
	}
	checkRows(t, keyRow, want)
}

// TestConfigItems compares the tables about list items in docs/config.md with their keys, in the
// order of the keys.
func TestConfigItems(t *testing.T) {
	var want [][]string
	for _, list := range config.Keys() {
		for _, k := range list.Items {
			want = append(want, []string{k.Path, k.Doc})
		}
	}
	checkRows(t, itemRow, want)
}

// TestConfigVariables checks that each environment variable in a document belongs to a key, and
// that each key's variable follows the rule in docs/config.md.
func TestConfigVariables(t *testing.T) {
	const short = "NEARSIDE_AUTO_REACHABLE_BACKENDS"
	known := map[string]bool{
		short: true,
		// Variables of commands, not of the config.
		"NEARSIDE_KEY": true, "NEARSIDE_SOCKET": true, "NEARSIDE_MESH": true, "NEARSIDE_SERVER": true,
		"NEARSIDE_TOKEN_FILE": true, "NEARSIDE_CA": true,
		"NEARSIDE_CHROMIUM": true, // of a test
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
