package match

// truth is the answer to a condition: some depend on what is not known here, as metadata that a
// filter sets.
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

// allOf is no as soon as one part is, and unknown if one is unknown. Nothing at all holds.
func allOf[T any](parts []T, eval func(T) truth) truth {
	out := yes
	for _, p := range parts {
		if out = min(out, eval(p)); out == no {
			break
		}
	}
	return out
}

// anyOf is yes as soon as one part is. Nothing at all does not hold.
func anyOf[T any](parts []T, eval func(T) truth) truth {
	out := no
	for _, p := range parts {
		if out = max(out, eval(p)); out == yes {
			break
		}
	}
	return out
}
