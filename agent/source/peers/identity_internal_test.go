package peers

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// TestCopiedDirectory opens a state directory on its own machine and on another one. The agent on
// the other machine takes a new ID once, saves it, and reports it.
func TestCopiedDirectory(t *testing.T) {
	dir := t.TempDir()
	open := func(m Machine) (*Source, *store.Store) {
		t.Helper()
		id, err := OpenIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		st, err := store.Open(store.Options{Path: filepath.Join(dir, "state.db"), Encode: resource.Marshal,
			Decode: decodeNote, Shared: Shared, Origin: engine.Origin{Node: id.Node, Name: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Options{Store: st, Decode: decodeNote, Self: id.Node, Signer: id.Signer, Fresh: id.Fresh,
			Node: "a", Cluster: "c",
			Bind: "127.0.0.1:0", Insecure: true, Log: slog.New(slog.DiscardHandler), Now: time.Now, Machine: m,
			NewID: func() (Identity, error) { return NewIdentity(dir) }})
		if err != nil {
			t.Fatal(err)
		}
		return s, st
	}
	var ids []engine.NodeID
	for i, m := range []Machine{{ID: "1", Host: "web-1"}, {ID: "1", Host: "renamed"}, {ID: "2", Host: "web-2"},
		{ID: "2", Host: "web-2"}} {
		s, st := open(m)
		ids = append(ids, s.node.Self())
		if text := s.node.Stats().Cloned; strings.Contains(text, "renamed") != (i == 2) || (text == "") != (i != 2) {
			t.Errorf("start %d: the report is %q", i, text)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if ids[0] != ids[1] || ids[1] == ids[2] || ids[2] != ids[3] {
		t.Errorf("IDs of the starts: %v", ids)
	}
}

// TestCopiedFrom checks which differences between the saved and the present machine are evidence of
// a copied state directory.
func TestCopiedFrom(t *testing.T) {
	const a, b = "a", "b"
	for name, c := range map[string]struct {
		saved, present Machine
		copied         bool
	}{
		"the same machine":                       {Machine{a, a, a}, Machine{a, a, a}, false},
		"a reboot":                               {Machine{a, a, a}, Machine{a, a, b}, false},
		"a reboot with a new name":               {Machine{a, a, a}, Machine{a, b, b}, false},
		"another machine":                        {Machine{a, a, a}, Machine{b, a, a}, true},
		"another machine with unknown rest":      {Machine{a, "", ""}, Machine{b, "", ""}, true},
		"no machine ID, another name":            {Machine{"", a, a}, Machine{"", b, a}, false},
		"no machine ID, another boot":            {Machine{"", a, a}, Machine{"", a, b}, false},
		"no machine ID, another name and boot":   {Machine{"", a, a}, Machine{"", b, b}, true},
		"no machine ID before, all else differs": {Machine{"", a, a}, Machine{b, b, b}, true},
		"no machine ID now, all else differs":    {Machine{a, a, a}, Machine{"", b, b}, true},
		"the name was unknown":                   {Machine{"", "", a}, Machine{"", b, b}, false},
		"the boot is unknown":                    {Machine{"", a, a}, Machine{"", b, ""}, false},
		"nothing was known":                      {Machine{}, Machine{b, b, b}, false},
	} {
		saved, reason := CopiedFrom(nil, c.saved)
		if reason != "" {
			t.Errorf("%s: without saved state: %q", name, reason)
		}
		value, reason := CopiedFrom(saved, c.present)
		if (reason != "") != c.copied || c.copied && c.saved.Host != "" && !strings.Contains(reason, c.saved.Host) {
			t.Errorf("%s: %q, copied %v", name, reason, c.copied)
		}
		if _, reason := CopiedFrom(value, c.present); reason != "" {
			t.Errorf("%s: after the new machine was saved: %q", name, reason)
		}
	}
	for _, damaged := range []string{"x", "null", "[1]", `{"machineId": 5}`} {
		if _, reason := CopiedFrom([]byte(damaged), Machine{a, a, a}); reason != "" {
			t.Errorf("saved state %s: %q", damaged, reason)
		}
	}
}

// TestHashMachineID checks that uninitialized machine IDs are unknown, and that others are hashed.
func TestHashMachineID(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for text, known := range map[string]bool{id + "\n": true, id: true, "": false, "uninitialized\n": false,
		strings.Repeat("0", 32): false, strings.Repeat("z", 32): false} {
		if got := hashMachineID(text); (got != "") != known || strings.Contains(got, id) {
			t.Errorf("%q: %q", text, got)
		}
	}
	if m := ReadMachine(); m.Host == "" {
		t.Logf("this machine has no host name: %+v", m)
	}
}
