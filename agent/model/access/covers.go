package access

// Match reports whether one of the patterns matches a text. * matches any number of characters.
func Match(patterns []string, text string) bool { return anyGlob(patterns, text) }
