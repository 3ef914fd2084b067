package substitution

// nearest returns the known name that was probably intended, or "". It considers operators and
// further names. Of equally near names it returns the first one, operators in alphabetical order.
func nearest(name string, further []string) string {
	const longest = 64 // no operator is longer, so a longer name is not a typo
	if len(name) > longest {
		return ""
	}
	best, at := "", 1+len(name)/3
	consider := func(known string) {
		if d := distance(name, known, at); d < at {
			best, at = known, d
		}
	}
	for _, f := range further {
		consider(f)
	}
	for i := range operators {
		consider(operators[i].name)
	}
	return best
}

// distance returns the number of bytes to insert, remove, replace, or swap with a neighbor to turn
// a into b, or most if it is not below that.
func distance(a, b string, most int) int {
	if d := len(a) - len(b); d >= most || -d >= most {
		return most
	}
	var rows [3][65]int
	if len(b) >= len(rows[0]) {
		return most
	}
	before, last, row := rows[0][:len(b)+1], rows[1][:len(b)+1], rows[2][:len(b)+1]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		low := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(row[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			row[j] = d
			low = min(low, d)
		}
		if low >= most {
			return most
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], most)
}
