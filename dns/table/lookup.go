package table

import "net/netip"

// Outcome is the result of a lookup.
type Outcome string

// Lookup results.
const (
	OutcomeForwarded Outcome = "forwarded" // the table does not own the name: the query is forwarded
	OutcomeRecords   Outcome = "records"
	OutcomeNoData    Outcome = "nodata"   // the name exists, without records of this type
	OutcomeNoName    Outcome = "nxdomain" // the name does not exist
)

// Lookup returns the table's answer to a name and a record type, for a view. The result below is
// the owned suffix of the name, or "". The error is not nil if the name is invalid.
func (t *Table) Lookup(name string, qtype uint16, v *View) (out Outcome, below string, err error) {
	q, err := queryOf(name)
	if err != nil {
		return OutcomeForwarded, "", err
	}
	q.Qtype = qtype
	m := t.lookup(&q, v)
	if t != nil {
		if at, flags := t.owner(&q); flags&flagOwned != 0 {
			below = string(AppendText(nil, q.name[at:q.len]))
		}
	}
	return [...]Outcome{OutcomeForwarded, OutcomeRecords, OutcomeNoData, OutcomeNoName}[m.outcome], below, nil
}

// Addrs returns the addresses of a name for a view, IPv4 first. It returns nil if the name has none
// or is invalid.
func (t *Table) Addrs(name string, v *View) (out []netip.Addr) {
	q, err := queryOf(name)
	if err != nil {
		return nil
	}
	for _, q.Qtype = range [...]uint16{TypeA, TypeAAAA} {
		m := t.lookup(&q, v)
		if m.outcome != positive {
			continue
		}
		for body := m.records.body[:recordsLen(m.records.body, int(m.records.count))]; len(body) > 0; {
			n := recordsLen(body, 1)
			if a, ok := netip.AddrFromSlice(body[12:n]); ok {
				out = append(out, a)
			}
			body = body[n:]
		}
	}
	return out
}

// queryOf returns a query for a name, without a type.
func queryOf(name string) (q Query, err error) {
	wire, err := AppendName(q.name[:0], name)
	if err != nil {
		return q, err
	}
	q.len = len(wire)
	for i := 0; wire[i] != 0; i += 1 + int(wire[i]) {
		q.labels[q.depth] = uint8(i)
		q.depth++
	}
	return q, nil
}
