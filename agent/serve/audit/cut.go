package audit

// maxDepth bounds the containers that a cut document can have inside each other.
const maxDepth = 200

// Cut returns the beginning of a JSON document as a document that is valid and has at most limit
// bytes: members and items behind the cut are missing, and so is a value that does not end before
// it. The document may be cut off already. It returns nil where nothing is left, as of a single
// long text.
func Cut(doc []byte, limit int) []byte {
	var open []byte // what closes the containers that are open, the innermost last
	var keep int    // up to here the document can be cut
	var closers []byte
	mark := func(i int) {
		if i+len(open) <= limit {
			keep = i
			closers = append(closers[:0], open...)
		}
	}
scan:
	for i := 0; i < len(doc) && i <= limit; i++ {
		switch c := doc[i]; c {
		case '{', '[':
			if len(open) == maxDepth {
				break scan
			}
			open = append(open, c+2) // in ASCII the closing one is two places on
			mark(i + 1)
		case '}', ']':
			if len(open) == 0 || open[len(open)-1] != c {
				break scan // it is no JSON
			}
			open = open[:len(open)-1]
			if mark(i + 1); len(open) == 0 {
				break scan
			}
		case ',':
			mark(i)
		case '"':
			for i++; i < len(doc) && doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
		}
	}
	if keep == 0 {
		return nil
	}
	out := append(make([]byte, 0, keep+len(closers)), doc[:keep]...)
	for i := len(closers) - 1; i >= 0; i-- {
		out = append(out, closers[i])
	}
	return out
}
