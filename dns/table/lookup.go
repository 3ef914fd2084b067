package table

// Outcome is what a table says about a name and a type.
type Outcome string

// Outcomes of a look-up.
const (
	OutcomeElsewhere Outcome = "elsewhere" // the table does not know: others are asked
	OutcomeRecords   Outcome = "records"
	OutcomeNoData    Outcome = "nodata"   // the name is there, without such records
	OutcomeNoName    Outcome = "nxdomain" // there is no such name
)

// Lookup says what a table answers for a name and a type of records, for a view; nil is one that
// sees everything. Below is the owned suffix that the name is below, "" for none. An error says
// that there can be no such name.
func (t *Table) Lookup(name string, qtype uint16, v *View) (out Outcome, below string, err error) {
	var q Query
	wire, err := AppendName(q.name[:0], name)
	if err != nil {
		return OutcomeElsewhere, "", err
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
	return [...]Outcome{OutcomeElsewhere, OutcomeRecords, OutcomeNoData, OutcomeNoName}[m.outcome], below, nil
}
