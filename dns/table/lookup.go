package table

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
	var q Query
	wire, err := AppendName(q.name[:0], name)
	if err != nil {
		return OutcomeForwarded, "", err
	}
	q.Qtype, q.len = qtype, len(wire)
	for i := 0; wire[i] != 0; i += 1 + int(wire[i]) {
		q.labels[q.depth] = uint8(i)
		q.depth++
	}
	m := t.lookup(&q, v)
	if t != nil {
		if at, ok := t.owner(&q); ok {
			below = string(AppendText(nil, q.name[at:q.len]))
		}
	}
	return [...]Outcome{OutcomeForwarded, OutcomeRecords, OutcomeNoData, OutcomeNoName}[m.outcome], below, nil
}
