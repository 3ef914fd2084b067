package faulttest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestSymptoms checks that the sentences of docs/symptoms.md are those that the rows expect.
func TestSymptoms(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_linux_test.go")
	agenttest.Do(t, err)
	var source strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		agenttest.Do(t, err)
		source.Write(text)
	}
	expected := regexp.MustCompile("[\"`] \\+\\s*[\"`]").ReplaceAllString(source.String(), "")
	page, err := os.ReadFile("../../../docs/symptoms.md")
	agenttest.Do(t, err)
	_, table, _ := strings.Cut(string(page), "| fault | first command | sentence |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	sentences := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[len(cells)-1], -1) {
			sentences++
			for text := range strings.SplitSeq(m[1], "…") {
				if text = strings.Trim(text, " ?\""); !strings.Contains(expected, text) {
					t.Errorf("no row expects %q of %q", text, m[1])
				}
			}
		}
	}
	if sentences < 20 {
		t.Errorf("the page has %d sentences", sentences)
	}
}
