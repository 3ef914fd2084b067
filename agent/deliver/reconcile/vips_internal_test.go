package reconcile

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

const (
	oldVIPs = oldVIPHead +
		"\"default\" \"\" \"web\" 240.1.2.3 - 1790000000000\n" +
		"\"default\" \"MeshService\" \"a \\\"b\\\"\\n\" 241.4.7.1 fd00:fd01::9ab:1 -\n" +
		"\"other\" \"\" \"web\" 240.1.2.3 fd00:fd00::7 -\n" +
		"end 3\n"
)

// TestStoredVIPs applies the changes between two sets of addresses, and reads the file of an
// earlier version.
func TestStoredVIPs(t *testing.T) {
	memory := virtualip.New([]virtualip.Entry{
		{Kind: "MeshService", Name: "a \"b\"\n", V4: netip.MustParseAddr("241.4.7.1"),
			V6: netip.MustParseAddr("fd00:fd01::9ab:1")},
		{Name: "web", V4: netip.MustParseAddr("240.1.2.3"), Gone: time.UnixMilli(1790000000000)},
	})
	stored := map[string]string{}
	changedVIPs(stored, "default", nil, memory)
	changedVIPs(stored, "other", nil, virtualip.New([]virtualip.Entry{{Name: "web", V4: netip.MustParseAddr("240.1.2.3"),
		V6: netip.MustParseAddr("fd00:fd00::7")}}))
	old, err := decodeOldVIPs(oldVIPs)
	if err != nil || len(stored) != 3 || len(old) != 3 {
		t.Fatalf("stored %q, the file has %q, %v", stored, old, err)
	}
	for service, addresses := range stored {
		if old[service] != addresses {
			t.Errorf("%s: stored %q, the file has %q", service, addresses, old[service])
		}
		name, e, err := decodeVIP(service + " " + addresses)
		if err != nil || vipService(name, e) != service || vipAddresses(e) != addresses {
			t.Errorf("%s %s: read as %v, %v", service, addresses, e, err)
		}
	}
	changes := map[string]string{}
	changedVIPs(changes, "default", memory, memory)
	if len(changes) > 0 {
		t.Errorf("nothing changes: %q", changes)
	}
	changedVIPs(changes, "default", memory,
		virtualip.New([]virtualip.Entry{{Name: "web", V4: netip.MustParseAddr("240.1.2.3")}, {Name: "new"}}))
	if len(changes) != 3 || changes[`"default" "" "web"`] != "240.1.2.3 - -" || changes[`"default" "" "new"`] != "- - -" {
		t.Errorf("changes: %q", changes)
	}
	changedVIPs(changes, "default", memory, nil)
	if v, ok := changes[`"default" "" "web"`]; !ok || v != "" {
		t.Errorf("a mesh that is gone: %q", changes)
	}
}

// TestOldVIPFaults reads files that are incomplete or were not written by an agent.
func TestOldVIPFaults(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "its header or its last line is missing"},
		{"another file", "hello\n", "its header or its last line is missing"},
		{"cut off in a line", oldVIPs[:60], "its header or its last line is missing"},
		{"cut off between lines", oldVIPs[:strings.Index(oldVIPs, "end")], "its header or its last line is missing"},
		{"a line is missing", strings.Replace(oldVIPs, "end 3", "end 4", 1), "its header or its last line is missing"},
		{"more behind the end", oldVIPs + "x\n", "its header or its last line is missing"},
		{"no address", oldVIPHead + "\"a\" \"\" \"b\" 240.1.2 - -\nend 1\n", "line 2: "},
		{"no time", oldVIPHead + "\"a\" \"\" \"b\" - - soon\nend 1\n", "line 2: \"soon\" is not a time"},
		{"no name", oldVIPHead + "\"a\" \"\" b - - -\nend 1\n", "line 2: a quoted name is missing"},
		{"too many values", oldVIPHead + "\"a\" \"\" \"b\" - - - -\nend 1\n", "line 2: 4 values"},
	} {
		if _, err := decodeOldVIPs(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzOldVIPs(f *testing.F) {
	f.Add(oldVIPs)
	f.Add(oldVIPHead + "end 0\n")
	f.Add(oldVIPHead + "\"a\" \"\" \"b\" ::ffff:1.2.3.4 fe80::1%x -1\nend 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		read, err := decodeOldVIPs(text)
		if err != nil {
			return
		}
		for service, addresses := range read {
			name, e, err := decodeVIP(service + " " + addresses)
			if err != nil || vipService(name, e) != service || vipAddresses(e) != addresses {
				t.Fatalf("%q %q was read as %q %v: %v", service, addresses, name, e, err)
			}
		}
	})
}
