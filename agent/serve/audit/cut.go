package audit

// maxDepth bounds the nesting of a truncated document.
const maxDepth = 200

// Cut truncates a JSON document to a valid document of at most limit bytes. It drops members and
// items after the limit, and a value that exceeds it. The input may already be truncated. Cut
// returns nil if nothing remains, for example of one long string.
func Cut(doc []byte, limit int) []byte {
	var open []byte // closing brackets of the open containers, innermost last
	var retain int  // last position where the document can be truncated
	var closers []byte
	mark := func(i int) {
		if i+len(open) <= limit {
			retain = i
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
			open = append(open, c+2) // in ASCII, the closing bracket is the opening one plus two
			mark(i + 1)
		case '}', ']':
			if len(open) == 0 || open[len(open)-1] != c {
				break scan // not JSON
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
	if retain == 0 {
		return nil
	}
	out := append(make([]byte, 0, retain+len(closers)), doc[:retain]...)
	for i := len(closers) - 1; i >= 0; i-- {
		out = append(out, closers[i])
	}
	return out
}
