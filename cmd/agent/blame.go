package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/nearside-mesh/nearside/agent/client"
)

// printBlame writes who shapes what a proxy rejects, one on each line.
func printBlame(w io.Writer, indent string, blame []client.Blame) {
	for _, b := range blame {
		fmt.Fprintf(w, "%s%s", indent, blamed(b))
		if len(b.Paths) > 0 {
			fmt.Fprintf(w, ": %s", strings.Join(b.Paths, ", "))
		}
		fmt.Fprintln(w)
	}
}

// blamed names a policy with its field and what speaks for it.
func blamed(b client.Blame) string {
	s := strings.ToLower(b.Type) + "/" + b.Name
	if b.Field != "" {
		s += " " + b.Field
	}
	switch b.Evidence {
	case client.BlameAlone:
		s += " (without it, this would be as it was accepted last)"
	case client.BlameChanged:
		s += " (changed since this was accepted last)"
	}
	return s
}

// oneLine takes line breaks out of the message of a proxy.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
