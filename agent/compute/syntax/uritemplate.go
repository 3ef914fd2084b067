package syntax

import "strings"

// URITemplateFault returns the fault in a path template, or "". Segments are literal, *, or a
// variable, and ** is only allowed as the last one.
func URITemplateFault(text string) string {
	if !strings.HasPrefix(text, "/") {
		return "it begins with a slash"
	}
	names := map[string]bool{}
	rest := text
	open := false
	for rest != "" {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			break
		}
		if rest[i] == '}' == !open {
			return "its braces do not match"
		}
		if open {
			name, _, _ := strings.Cut(rest[:i], "=")
			if name == "" || names[name] {
				return "each variable needs a different name"
			}
			names[name] = true
		}
		open = !open
		rest = rest[i+1:]
	}
	if i := strings.Index(text, "**"); i >= 0 && strings.Contains(text[i+2:], "/") || open {
		return "** is the last segment, and braces are closed"
	}
	return ""
}
