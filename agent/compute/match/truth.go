package match

// truth is the value of a condition. It is unknown if it depends on data that this package lacks,
// such as metadata that a filter sets.
type truth int8

const (
	no truth = iota - 1
	unknown
	yes
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

func (t truth) not() truth { return -t }

// allOf is no if any part is no, else unknown if any part is unknown, else yes.
func allOf[T any](parts []T, eval func(T) truth) truth {
	out := yes
	for _, p := range parts {
		if out = min(out, eval(p)); out == no {
			break
		}
	}
	return out
}

// anyOf is yes if any part is yes. It is no without parts.
func anyOf[T any](parts []T, eval func(T) truth) truth {
	out := no
	for _, p := range parts {
		if out = max(out, eval(p)); out == yes {
			break
		}
	}
	return out
}
