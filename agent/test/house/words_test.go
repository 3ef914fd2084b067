package house

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// leftOut lists words that messages, help texts, and pages must not use, with the terms to use
// instead. Users of Kuma, Envoy, and Kubernetes know these terms.
var leftOut = []struct {
	words *regexp.Regexp
	say   string
}{
	{word(`rooms?`), "plugin"},
	{word(`prox(y|ies) at the borders?`), "zone proxy"},
	{word(`real (Mesh)?services?`), "MeshService resource"},
	{word(`(new|old|legacy) generation`), "targetRef policies, source-destination policies (legacy)"},
	{word(`surprises?|surprised|works? otherwise`), "warning"},
	{word(`troubles?|unfit`), "rejected (by Envoy), refused (by the API), withheld (by the check)"},
	{word(`held back|hold back|holds back|shines? through`), "withheld, falls back to"},
	{word(`(the )?(view|snapshot) before`), "previous view, previous snapshot"},
	{word(`goes (before|over|under)`), "takes precedence over, is overridden by"},
	{word(`mend(s|ed|ing)?`), "fix, fixed, valid again"},
	{word(`hollow`), "missing"},
	{word(`came up|took it|takes over`), "ACKed, applied"},
	{word(`the present one`), "restore a revision"},
	{word(`the answer is no`), "outcome: allowed, denied, unreachable, unknown host; exit code 2: negative result"},
	{word(`ended by`), "superseded by"},
	{word(`defects? of the agent`), "internal error"},
	{word(`how far it is`), "sync status"},
	{word(`at the door|heard out|it is well if|put down to|part ways|the two part`), "a plain sentence"},
	{word(`told apart|tell apart`), "distinguished, or the limit in numbers"},
	{word(`gives? (the |its |their )?Envoys`), "serves to Envoy"},
	{word(`strconv\.\w+|time: (missing|unknown|invalid) \w+`), "the value, and what is allowed"},
	{regexp.MustCompile(`(?:^|[^f] )1 (resources|files|dataplanes|warnings|findings)\b`), "the singular"},
}

// word matches whole words, ignoring case.
func word(s string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(` + s + `)\b`) }

// unfitWords finds words of the list in a text.
func unfitWords(text string) (found, say string) {
	for _, w := range leftOut {
		if m := w.words.FindString(text); m != "" {
			return m, w.say
		}
	}
	return "", ""
}

// spokenLiterals calls fn for the string literals of non-test files that users may read, which are
// those with a space.
func spokenLiterals(t *tree, fn func(at, text string)) {
	t.each(func(p *pkg, f *file) {
		if f.test || testSupport(p.dir) || p.dir == "agent/test/house" {
			return
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if s, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(s, " ") {
				fn(f.at(lit), s)
			}
			return true
		})
	})
}

// TestMessagesUseTheFieldsWords searches all messages of the program for the words in leftOut.
func TestMessagesUseTheFieldsWords(t *testing.T) {
	tree, err := load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	spokenLiterals(tree, func(at, text string) {
		count++
		if found, say := unfitWords(text); found != "" {
			t.Errorf("%s: %q says %q; say: %s", at, text, found, say)
		}
	})
	if count < 1000 {
		t.Errorf("only %d messages were found: the test says nothing", count)
	}
}

// TestDocumentsUseTheFieldsWords searches the documents, including code blocks, because these show
// output of the program. The change log may quote messages of old releases.
func TestDocumentsUseTheFieldsWords(t *testing.T) {
	docs := documents(t, os.DirFS(root))
	for name, text := range docs {
		if name == "CHANGELOG.md" {
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			if found, say := unfitWords(line); found != "" {
				t.Errorf("%s:%d says %q; say: %s", name, i+1, found, say)
			}
		}
	}
	if len(docs) < 10 {
		t.Errorf("only %d documents were found: the test says nothing", len(docs))
	}
}

// TestWordsCanBeFound checks that the list matches its words and nothing in plain sentences.
func TestWordsCanBeFound(t *testing.T) {
	for _, bad := range []string{
		"one room for each kind", "2 Surprises", "mend what is named", "it is held back", "the answer is no",
		"parsing \"x\": strconv.ParseUint: invalid",
	} {
		if found, _ := unfitWords(bad); found == "" {
			t.Errorf("nothing is found in %q", bad)
		}
	}
	for _, good := range []string{
		"one plugin for each kind", "2 warnings", "headroom for a burst", "amendment", "withheld by the check",
	} {
		if found, _ := unfitWords(good); found != "" {
			t.Errorf("%q is found in %q", found, good)
		}
	}
}
