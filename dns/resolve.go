package dns

import "net/netip"

// verdicts of resolve, beside those of read
const (
	forward   verdict = iota + failed + 1
	pastTable         // forward, for the name behind a label
)

// resolve answers a message as far as it can be without asking others: the reply is appended to
// out. With forward the question is for others, with dropped nobody gets an answer.
func (a *Answers) resolve(q *query, m []byte, client netip.Addr, turn uint32, tcp bool, out []byte) ([]byte, verdict) {
	v, rcode := q.read(m)
	switch v {
	case dropped:
		return out, dropped
	case failed:
		return q.refuse(out, m, rcode), failed
	}
	if q.isPast() {
		if _, owned := a.table.owner(q); !owned { // else nobody but the table knows of it
			return out, pastTable
		}
	}
	found := a.table.lookup(q, a.view(client))
	if found.outcome == elsewhere {
		return out, forward
	}
	if a.pending && found.outcome != positive {
		return q.refuse(out, m, rcodeServFail), failed
	}
	return q.answer(out, m, a.table, found, turn, q.limit(tcp)), accepted
}
