package identity

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzParseRoots checks that parsed contents of a file encode to the same bytes.
func FuzzParseRoots(f *testing.F) {
	p, err := newRoot("default", "ca", 0, time.Hour, time.Unix(1e9, 0))
	if err != nil {
		f.Fatal(err)
	}
	whole, err := encodeRoots([]*authority{{pair: p}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(append(whole, whole...))
	f.Add(whole[:len(whole)-30])
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseRoots(data, "default", "ca")
		if err != nil {
			return
		}
		encoded, err := encodeRoots(list)
		if err != nil || len(list) == 0 || len(list) > maxAuthorities {
			t.Fatalf("%d authorities: %v", len(list), err)
		}
		if back, err := parseRoots(encoded, "default", "ca"); err != nil || len(back) != len(list) ||
			!bytes.Equal(back[0].cert.Raw, list[0].cert.Raw) {
			t.Fatalf("what was written is not read: %v", err)
		}
	})
}

// FuzzFileOf checks that any name maps to a file in the directory of its mesh, and that names of
// resources survive the round trip.
func FuzzFileOf(f *testing.F) {
	f.Add("default", "web")
	f.Add("..", "../../etc/passwd")
	f.Add("", strings.Repeat("x", 300))
	f.Fuzz(func(t *testing.T, mesh, name string) {
		file := fileOf(mesh, proxyPrefix, name)
		parts := strings.Split(file, string(filepath.Separator))
		if len(parts) != 2 || len(parts[1]) > 255 || !filepath.IsLocal(file) || parts[0] == "." || parts[0] == ".." {
			t.Fatalf("%q, %q: %q", mesh, name, file)
		}
		m, n, ok := proxyOf(file)
		if !ok || n != "" && (m != mesh || n != name) {
			t.Fatalf("%q, %q: back as %q, %q, %v", mesh, name, m, n, ok)
		}
	})
}
