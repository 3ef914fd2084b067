package table

import "net/netip"

// verdicts of resolve, beside those of read
const (
	Forward   verdict = iota + Failed + 1
	PastTable         // forward, for the name behind a label
)

// Resolve answers a message as far as it can be without asking others: the reply is appended to
// out. With forward the question is for others, with dropped nobody gets an answer.
func (a *Answers) Resolve(q *Query, m []byte, client netip.Addr, turn uint32, tcp bool, out []byte) ([]byte, verdict) {
	v, rcode := q.Read(m)
	switch v {
	case Dropped:
		return out, Dropped
	case Failed:
		return q.Refuse(out, m, rcode), Failed
	}
	if q.isPast() {
		if _, owned := a.Table.owner(q); !owned { // else nobody but the table knows of it
			return out, PastTable
		}
	}
	found := a.Table.lookup(q, a.view(client))
	if found.outcome == elsewhere {
		return out, Forward
	}
	if a.pending && found.outcome != positive {
		return q.Refuse(out, m, RcodeServFail), Failed
	}
	return q.answer(out, m, a.Table, found, turn, q.Limit(tcp)), Accepted
}
