package text

import (
	"fmt"
	"io"
	"time"
)

// progressEvery is the interval of progress lines on a terminal; what takes less shows none.
const progressEvery = 200 * time.Millisecond

// Progress shows in one line of a terminal how far something is and how long the rest takes; done
// removes the line. It is told of 0 of 0 while others are served first.
func Progress(w io.Writer, what string, now func() time.Time) (told func(n, all int), done func()) {
	last, shown := now(), false
	var begun time.Time // when it was told of some for the first time, of so many
	first := 0
	told = func(n, all int) {
		at := now()
		if begun.IsZero() && n > 0 {
			begun, first = at, n
		}
		if at.Sub(last) < progressEvery {
			return
		}
		line := fmt.Sprintf("%s: %d of %d", what, n, all)
		if all == 0 {
			line = what + ": the agent serves others first"
		}
		if spent := at.Sub(begun); n > first && n < all && spent >= time.Second {
			left := time.Duration(float64(spent) / float64(n-first) * float64(all-n))
			line += fmt.Sprintf(", about %s left", max(left.Round(time.Second), time.Second))
		}
		fmt.Fprintf(w, "\r\033[K%s", line)
		last, shown = at, true
	}
	return told, func() {
		if shown {
			fmt.Fprint(w, "\r\033[K")
		}
	}
}
