package trust_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/trust"
)

// TestEdit checks that a change of the mode or a revocation leaves the rest of the text unchanged.
func TestEdit(t *testing.T) {
	in := "# ours\n" + document(7, "off", "# end\n")
	out, err := trust.SetMode([]byte(in), "warn")
	want := strings.Replace(strings.Replace(in, "version: 7", "version: 8", 1), "mode: off", "mode: warn", 1)
	if err != nil || string(out) != want {
		t.Fatalf("%v\n%s", err, out)
	}
	ids := []string{}
	for i, name := range []string{"alice", "bob"} {
		r := trust.Revocation{Name: name, Key: trust.PublicKey(key(name).Public()).ID(), Since: start, Keep: &ids}
		if out, err = trust.Revoke(out, r); err != nil {
			t.Fatal(err)
		}
		f, err := trust.DecodeFile(out)
		if err != nil || len(f.Revoked) != i+1 || f.Revoked[0].Name != name || !bytes.HasPrefix(out, []byte("# ours\n")) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for what, in := range map[string]string{
		"flow":            "{cluster: c, version: 1, mode: off}",
		"an inline list":  document(1, "off", "revoked: [{key: "+id("x")+", since: 2026-11-28T00:00:00Z}]\n"),
		"an invalid file": "cluster: c\n",
	} {
		if out, err := trust.Revoke([]byte(in), trust.Revocation{Key: trust.PublicKey(key("bob").Public()).ID(),
			Since: start}); err == nil {
			t.Errorf("%s: is changed to\n%s", what, out)
		}
	}
}

// TestDocument checks that a new trust file decodes to its content.
func TestDocument(t *testing.T) {
	ids := []string{"x"}
	f := &trust.File{Cluster: "c", Version: 1, Mode: "off", Threshold: 1,
		Roots: []trust.Root{{Name: "a: \"b\" #", Key: trust.PublicKey(key("a").Public())}},
		Roles: []trust.Role{{Name: "r", Allow: access.Allow{Kinds: []string{"*"}, Verbs: []string{"*"}}}},
		Keys: []trust.Key{{Name: "k", Key: trust.PublicKey(key("k").Public()), Role: "r",
			NotAfter: start.Add(time.Hour)}},
		Nodes:   []trust.Node{{Name: "n", Key: trust.PublicKey(key("n").Public()).ID(), Role: "r"}},
		Revoked: []trust.Revocation{{Key: trust.PublicKey(key("x").Public()).ID(), Since: start, Keep: &ids}}}
	text, err := f.Document()
	if err != nil {
		t.Fatal(err)
	}
	got, err := trust.DecodeFile(text)
	if err != nil || fmt.Sprintf("%+v", got.Roots) != fmt.Sprintf("%+v", f.Roots) || got.Keys[0].Role != "r" ||
		len(*got.Revoked[0].Keep) != 1 || !got.Keys[0].NotAfter.Equal(f.Keys[0].NotAfter) {
		t.Errorf("%v\n%s\n%+v", err, text, got)
	}
}
