package resolver_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	miekg "github.com/miekg/dns"
)

// authority is a name server of several zones. Names outside of its zones do not exist.
type authority struct {
	addr    string
	zones   []string // the longest first
	records map[string][]miekg.RR
	refused string // a suffix for which it answers SERVFAIL

	mu    sync.Mutex
	asked map[string]bool
}

// newAuthority starts a name server. Records that follow a SOA record belong to its zone.
func newAuthority(t *testing.T, refused, text string) *authority {
	t.Helper()
	a := &authority{records: map[string][]miekg.RR{}, refused: refused, asked: map[string]bool{}}
	p := miekg.NewZoneParser(strings.NewReader(text), ".", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		name := rr.Header().Name
		a.records[name] = append(a.records[name], rr)
		if rr.Header().Rrtype == miekg.TypeSOA {
			a.zones = append(a.zones, name)
		}
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.addr = conn.LocalAddr().String()
	srv := &miekg.Server{PacketConn: conn, Handler: miekg.HandlerFunc(func(w miekg.ResponseWriter, q *miekg.Msg) {
		_ = w.WriteMsg(a.answer(q))
	})}
	done := make(chan error, 1)
	go func() { done <- srv.ActivateAndServe() }()
	t.Cleanup(func() { _ = srv.Shutdown(); <-done })
	return a
}

// wasAsked reports whether the server received a question for a name.
func (a *authority) wasAsked(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[name]
}

// add adds a record.
func (a *authority) add(t *testing.T, text string) {
	t.Helper()
	rr, err := miekg.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	name := rr.Header().Name
	a.records[name] = append(a.records[name], rr)
	if rr.Header().Rrtype == miekg.TypeSOA {
		a.zones = append([]string{name}, a.zones...)
	}
}

// answer answers as RFC 1034 section 4.3.2 says, without delegations.
func (a *authority) answer(q *miekg.Msg) *miekg.Msg {
	a.mu.Lock()
	defer a.mu.Unlock()
	name, qtype := strings.ToLower(q.Question[0].Name), q.Question[0].Qtype
	a.asked[strings.TrimSuffix(name, ".")] = true
	m := new(miekg.Msg).SetReply(q)
	if a.refused != "" && miekg.IsSubDomain(a.refused, name) {
		return m.SetRcode(q, miekg.RcodeServerFailure)
	}
	zone := ""
	for _, z := range a.zones {
		if miekg.IsSubDomain(z, name) && len(z) > len(zone) {
			zone = z
		}
	}
	if zone == "" {
		return m.SetRcode(q, miekg.RcodeNameError)
	}
	m.Authoritative = true
	list, exists := a.records[name], a.exists(name)
	for at := name; !exists && at != zone; { // the wildcard of the closest encloser
		_, parent, _ := strings.Cut(at, ".")
		if at = parent; a.exists(at) {
			list = a.records["*."+at]
			exists = list != nil
			break
		}
	}
	if !exists {
		m.Rcode = miekg.RcodeNameError
	}
	for _, rr := range list {
		if t := rr.Header().Rrtype; t == qtype || t == miekg.TypeCNAME {
			rr = miekg.Copy(rr)
			rr.Header().Name = q.Question[0].Name
			m.Answer = append(m.Answer, rr)
		}
	}
	if len(m.Answer) == 0 {
		for _, rr := range a.records[zone] {
			if rr.Header().Rrtype == miekg.TypeSOA {
				m.Ns = append(m.Ns, rr)
			}
		}
	}
	return m
}

// exists reports whether a name or a name below it has records.
func (a *authority) exists(name string) bool {
	for other := range a.records {
		if miekg.IsSubDomain(name, other) {
			return true
		}
	}
	return false
}
