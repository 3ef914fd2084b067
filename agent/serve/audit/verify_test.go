package audit_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/audit"
)

// chain returns the lines of n events, without LF.
func chain(n int) (lines [][]byte, last audit.Link) {
	e := &audit.Event{Level: audit.LevelMetadata, Verb: audit.VerbGet, At: time.Unix(0, 0), Received: time.Unix(0, 0)}
	start := audit.StartNew
	for range n {
		line := last.Append(nil, e.Append(nil), start)
		lines, start = append(lines, bytes.TrimSuffix(line, []byte{'\n'})), ""
	}
	return lines, last
}

// FuzzVerify inserts arbitrary lines into a chain, and removes a line. The verifier finds each
// change of the chain, and never panics.
func FuzzVerify(f *testing.F) {
	lines, _ := chain(3)
	f.Add([]byte("{}\n"), uint8(1), uint8(9))
	f.Add([]byte(`"nearside.io/number":"1","nearside.io/previous":""}}`), uint8(0), uint8(2))
	f.Add(bytes.Join(lines, []byte("\n")), uint8(2), uint8(0))
	f.Fuzz(func(t *testing.T, text []byte, at, gone uint8) {
		const n = 8
		lines, last := chain(n)
		v := audit.NewVerifier(&audit.Record{First: 1, Last: last}, audit.Link{})
		changed := false
		for i, line := range lines {
			if i == int(at) {
				for k, extra := range bytes.Split(text, []byte("\n")) {
					v.Line("extra", k+1, extra)
				}
				changed = true
			}
			if i == int(gone) {
				changed = true
				continue
			}
			v.Line("a", i+1, line)
		}
		r := v.Report("a", &audit.Record{First: 1, Last: last})
		if r.Intact == changed {
			// Only the removed line itself may be in its place.
			if r.Intact && at == gone && bytes.Equal(text, lines[gone]) {
				return
			}
			t.Fatalf("changed %v: %+v", changed, r)
		}
	})
}

func BenchmarkChain(b *testing.B) {
	lines, link := chain(1)
	line := append(lines[0], '\n')
	var out []byte
	for b.Loop() {
		out = link.Append(out[:0], line, "")
	}
}

func BenchmarkVerify(b *testing.B) {
	lines, _ := chain(1000)
	for b.Loop() {
		v := audit.NewVerifier(nil, audit.Link{})
		for i, line := range lines {
			v.Line("a", i+1, line)
		}
		if r := v.Report("a", nil); !r.Intact {
			b.Fatal(r.Findings)
		}
	}
}
