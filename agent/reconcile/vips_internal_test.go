package reconcile

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/mesh"
)

const goodVIPs = vipHead + "\n" +
	"\"default\" \"\" \"web\" 240.1.2.3 - 1790000000000\n" +
	"\"default\" \"MeshService\" \"a \\\"b\\\"\\n\" 241.4.7.1 fd00:fd01::9ab:1 -\n" +
	"\"other\" \"\" \"web\" 240.1.2.3 fd00:fd00::7 -\n" +
	"end 3\n"

// TestVIPFile writes a memory and reads it back.
func TestVIPFile(t *testing.T) {
	all := map[string]*mesh.VIPs{
		"other": mesh.NewVIPs([]mesh.VIPEntry{{Name: "web", V4: netip.MustParseAddr("240.1.2.3"), V6: netip.MustParseAddr("fd00:fd00::7")}}),
		"default": mesh.NewVIPs([]mesh.VIPEntry{
			{Kind: "MeshService", Name: "a \"b\"\n", V4: netip.MustParseAddr("241.4.7.1"), V6: netip.MustParseAddr("fd00:fd01::9ab:1")},
			{Name: "web", V4: netip.MustParseAddr("240.1.2.3"), Gone: time.UnixMilli(1790000000000)},
		}),
	}
	text := encodeVIPs(all)
	if string(text) != goodVIPs {
		t.Errorf("wrote\n%s\nwant\n%s", text, goodVIPs)
	}
	read, err := decodeVIPs(text)
	if err != nil {
		t.Fatal(err)
	}
	if again := encodeVIPs(read); !bytes.Equal(again, text) {
		t.Errorf("read back:\n%s", again)
	}
}

// TestVIPFileFaults reads what no agent has written, or half of what one has.
func TestVIPFileFaults(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "line 0: the end is missing"},
		{"another file", "hello\n", "line 1: the file begins with \"hello\""},
		{"cut off in a line", goodVIPs[:60], "line 2: it is cut off"},
		{"cut off between lines", goodVIPs[:strings.Index(goodVIPs, "end")], "the end is missing"},
		{"a line is missing", strings.Replace(goodVIPs, "end 3", "end 4", 1), "the file has 3 services, and \"end 4\""},
		{"more behind the end", goodVIPs + "x\n", "line 6: something stands behind the end"},
		{"no address", vipHead + "\n\"a\" \"\" \"b\" 240.1.2 - -\nend 1\n", "line 2: "},
		{"no time", vipHead + "\n\"a\" \"\" \"b\" - - soon\nend 1\n", "line 2: \"soon\" is not a time"},
		{"no name", vipHead + "\n\"a\" \"\" b - - -\nend 1\n", "line 2: a name in quotes is missing"},
		{"too many values", vipHead + "\n\"a\" \"\" \"b\" - - - -\nend 1\n", "line 2: 4 values"},
	} {
		if _, err := decodeVIPs([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzVIPFile(f *testing.F) {
	f.Add([]byte(goodVIPs))
	f.Add([]byte(vipHead + "\nend 0\n"))
	f.Add([]byte(vipHead + "\n\"a\" \"\" \"b\" ::ffff:1.2.3.4 fe80::1%x -1\nend 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := decodeVIPs(data)
		if err != nil {
			return
		}
		text := encodeVIPs(read)
		again, err := decodeVIPs(text)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, text)
		}
		if !bytes.Equal(encodeVIPs(again), text) {
			t.Fatalf("read and written again it differs:\n%s", text)
		}
	})
}
