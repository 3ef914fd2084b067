package table

// PassthroughLabel is the first label of names that are forwarded even if the table has the name
// behind the label: _nearside-past.db.example.com is an alias (CNAME) of the upstream's
// db.example.com. A proxy at the virtual address of a name thereby finds the real destination.
// Names below owned suffixes cannot be queried like this.
const PassthroughLabel = "_nearside-past"

// Passthrough returns a name with the passthrough label. The result may be too long for a name.
func Passthrough(name string) string { return PassthroughLabel + "." + name }

// ProxySpelling returns a name in lower case with its last letter in upper case, or "" if it has no
// letter. A query in this spelling gets the real addresses of a name of a group from [Apart] on,
// and a proxy uses it for a name whose virtual address it serves itself. Other servers ignore the
// case of letters, so the proxy finds the addresses also without the table.
func ProxySpelling(name string) string {
	b := []byte(name)
	last := -1
	for i, c := range b {
		if b[i] = Lower(c); b[i] >= 'a' && b[i] <= 'z' {
			last = i
		}
	}
	if last < 0 {
		return ""
	}
	b[last] -= 'a' - 'A'
	return string(b)
}

// asksReal reports whether the name of the question in a message has the spelling of
// [ProxySpelling].
func (q *Query) asksReal(m []byte) bool {
	upper := false
	for i := q.End - 6; i > HeaderLen; i-- { // lengths of labels are less than 'A'
		switch c := m[i]; {
		case c >= 'A' && c <= 'Z' && upper, c >= 'a' && c <= 'z' && !upper:
			return false
		case c >= 'A' && c <= 'Z':
			upper = true
		}
	}
	return upper
}

// apart reports whether the table has the name of the question in a group from Apart on.
func (t *Table) apart(q *Query) bool {
	if t == nil {
		return false
	}
	f := t.get(q.Key())
	return f.ok() && f.e.flags&flagHost != 0 && f.e.group >= Apart
}

// isPassthrough reports whether the name starts with the passthrough label.
func (q *Query) isPassthrough() bool {
	return q.depth > 1 && int(q.name[0]) == len(PassthroughLabel) &&
		string(q.name[1:1+len(PassthroughLabel)]) == PassthroughLabel
}
