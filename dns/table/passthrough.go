package table

// PassthroughLabel is the first label of names that are forwarded even if the table has the name
// behind the label: _nearside-past.db.example.com is an alias (CNAME) of the upstream's
// db.example.com. A proxy at the virtual address of a name thereby finds the real destination.
// Names below owned suffixes cannot be queried like this.
const PassthroughLabel = "_nearside-past"

// Passthrough returns a name with the passthrough label. The result may be too long for a name.
func Passthrough(name string) string { return PassthroughLabel + "." + name }

// isPassthrough reports whether the name starts with the passthrough label.
func (q *Query) isPassthrough() bool {
	return q.depth > 1 && int(q.name[0]) == len(PassthroughLabel) &&
		string(q.name[1:1+len(PassthroughLabel)]) == PassthroughLabel
}
