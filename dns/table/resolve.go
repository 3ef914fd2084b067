package table

import "net/netip"

// Verdicts of Resolve, in addition to those of Read.
const (
	Forward         verdict = iota + Failed + 1
	PassthroughName         // forward the name behind the passthrough label
	RealName                // forward the name, although the table has it; see ProxySpelling
	AcceptedDefault         // replied, for clients of the default servers; forward the query for others
)

// Resolve answers a message from the table, and appends the reply to out. The caller forwards
// queries with the verdict Forward, PassthroughName, or RealName, and those with AcceptedDefault if
// the client queried another server than the default ones, which then decides about the name.
// Messages with the verdict Dropped get no reply.
func (a *Answers) Resolve(q *Query, m []byte, client netip.Addr, turn uint32, tcp bool, out []byte) ([]byte, verdict) {
	v, rcode := q.Read(m)
	switch v {
	case Dropped:
		return out, Dropped
	case Failed:
		return q.Refuse(out, m, rcode), Failed
	}
	if q.isPassthrough() {
		if _, flags := a.Table.owner(q); flags&flagOwned == 0 { // names below owned suffixes exist only in the table
			return out, PassthroughName
		}
	}
	if q.asksReal(m) && (a.Table.apart(q) || a.failing.apart(q)) {
		return out, RealName
	}
	view, own := a.view(client)
	found := a.Table.lookup(q, view)
	if a.fails(q, view, own, &found) {
		return q.Refuse(out, m, RcodeServFail), Failed
	}
	if found.outcome == unknown {
		return out, Forward
	}
	if (a.pending && found.outcome != positive || a.partial && found.outcome == noName) && !found.local {
		return q.Refuse(out, m, RcodeServFail), Failed
	}
	if v = Accepted; found.doubt {
		v = AcceptedDefault
	}
	return q.answer(out, m, a.Table, found, turn, q.Limit(tcp)), v
}
