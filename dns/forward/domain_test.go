package forward

import (
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/table"
)

// Names of one owner share a domain.
func TestDomains(t *testing.T) {
	for name, want := range map[string]string{
		"a.b.example.com": "example.com", "example.com": "example.com", "com": "com",
		"a.b.example.co.uk": "example.co.uk", "a.b.heise.de": "heise.de", "a.b.c.test": "c.test",
		"4.3.2.1.in-addr.arpa":             "2.1.in-addr.arpa",
		"1.2.3.4.5.6.7.8.9.a.b.c.ip6.arpa": "5.6.7.8.9.a.b.c.ip6.arpa",
	} {
		var q table.Query
		q.Read(packed(t, new(mdns.Msg).SetQuestion(mdns.Fqdn(name), mdns.TypeA)))
		var buf [4 * table.MaxName]byte
		if got := string(table.AppendText(buf[:0], registrable(q.Key()))); got != want {
			t.Errorf("%s is of %s, want %s", name, got, want)
		}
	}
}

// A client that exhausts a limit leaves room for others, and each of them for further ones.
func TestFull(t *testing.T) {
	const limit = 800
	used := 0
	for ahead := 0; !Full(used, limit, ahead); ahead++ {
		used++
	}
	if used != limit {
		t.Errorf("the first client uses %d of %d", used, limit)
	}
	for client := range 8 {
		ahead := 0
		for ; !Full(used, limit, ahead); ahead++ {
			used++
		}
		if ahead == 0 {
			t.Errorf("client %d gets nothing: %d used", client, used)
		}
	}
	if used > limit+limit/reserve {
		t.Errorf("%d are used", used)
	}
}
