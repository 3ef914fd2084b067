package substitution_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/substitution"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
)

// minors are the minor versions of Envoy 1.x in the table.
var minors = []string{"36", "37", "38", "39", "40"}

// TestFormatsOfEnvoys compares the verdict about each format with those of real Envoys, by version.
// make envoy-formats asks them again.
func TestFormatsOfEnvoys(t *testing.T) {
	file, err := os.Open("testdata/formats.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	formats := 0
	for in := bufio.NewScanner(file); in.Scan(); {
		want, quoted, _ := strings.Cut(in.Text(), " ")
		if want == "#" {
			continue
		}
		var format string
		if err := json.Unmarshal([]byte(quoted), &format); err != nil {
			t.Fatal(err)
		}
		formats++
		if got := accepting(format); got != want {
			_, err := substitution.ParseFormat(format)
			t.Errorf("%s: accepted for %s (%v), but by Envoy %s", quoted, got, err, want)
		}
	}
	if formats < 1200 {
		t.Errorf("the table has only %d formats", formats)
	}
}

// accepting returns the minor versions of Envoys for which a format is accepted.
func accepting(format string) string {
	segments, err := substitution.ParseFormat(format)
	if err != nil {
		return "-"
	}
	first := uint32(36)
	for i := range segments {
		if segments[i].Operator == "CEL" && syntax.CELFault(segments[i].Arg) != "" {
			return "-" // the check does so
		}
		for _, f := range segments[i].Newer() {
			first = max(first, f.Since)
		}
	}
	return strings.Join(minors[first-36:], ",")
}
