package agent

import "strings"

// clip shortens a value for a message.
func clip(s string) string { return clipTo(s, 64) }

// clipTo shortens a text to about limit bytes.
func clipTo(s string, limit int) string {
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
