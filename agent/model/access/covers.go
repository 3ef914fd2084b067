package access

// Covers reports whether the permission allows an action.
func (a *Allow) Covers(act Action) bool { return a.covers(act, false) }

// Match reports whether one of the patterns matches a text. * matches any number of characters.
func Match(patterns []string, text string) bool { return anyGlob(patterns, text) }
