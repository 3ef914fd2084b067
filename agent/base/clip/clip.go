// Package clip shortens text from documents and peers for messages and makes it safe to print.
package clip

import (
	"strings"
)

// Short is the maximum length in bytes of a value in a message.
const Short = 60

// maxSearched limits the bytes beyond the limit of a text that are searched for secrets.
const maxSearched = 64 << 10

// Text cuts s to at most limit bytes without splitting a character and marks the cut with an
// ellipsis. It replaces private keys; see [Secrets].
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

// PrintableText is [Text] for text from a peer or a file; see [Printable].
func PrintableText(s string, limit int) string { return Text(Printable(Text(s, limit)), limit) }
