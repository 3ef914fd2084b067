package table

// PastLabel begins names that are asked of other servers, whatever the table has:
// _nearside-past.db.example.com is an alias (CNAME) of what they know as db.example.com. So who
// dials the address that a table has for a name can find out where to go from there. Below owned
// suffixes there are no such names.
const PastLabel = "_nearside-past"

// Past returns the name that is asked past the table. It may be too long for a name.
func Past(name string) string { return PastLabel + "." + name }

// isPast reports whether a name begins so.
func (q *Query) isPast() bool {
	return q.depth > 1 && int(q.name[0]) == len(PastLabel) && string(q.name[1:1+len(PastLabel)]) == PastLabel
}
