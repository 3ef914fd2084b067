// Package clip shortens text from documents and peers for messages.
package clip

import "strings"

// Short is the length in bytes that a value has in a message at most.
const Short = 60

// Text cuts s to at most limit bytes of whole characters and marks the cut with an ellipsis.
func Text(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// Value is [Text] with the limit [Short].
func Value(s string) string { return Text(s, Short) }
