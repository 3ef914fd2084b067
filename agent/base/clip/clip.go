// Package clip shortens text from documents and peers for messages, and makes it safe to show.
package clip

import (
	"strings"
)

// Short is the length in bytes that a value has in a message at most.
const Short = 60

// maxSearched bounds the bytes of a text in which secrets are looked for, beyond its limit.
const maxSearched = 64 << 10

// Text cuts s to at most limit bytes of whole characters and marks the cut with an ellipsis. What
// looks like a private key is taken out; see [Secrets].
func Text(s string, limit int) string {
	cut := len(s) > limit+maxSearched
	if s = Secrets(s[:min(len(s), limit+maxSearched)]); len(s) <= limit && !cut {
		return s
	}
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "") + "…"
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// Value is [Text] with the limit [Short].
func Value(s string) string { return Text(s, Short) }

// PrintableText is [Text] for what a peer or a file says: see [Printable].
func PrintableText(s string, limit int) string { return Text(Printable(Text(s, limit)), limit) }
