package logpaths

import "github.com/nearside-mesh/nearside/agent/base/plural"

// Future describes backups of a file with a time in the future, and returns "" for none.
func Future(file string, n int) string {
	if n == 0 {
		return ""
	}
	return plural.Form(n, "1 backup of "+file+" has", "%d backups of "+file+" have") + " a time in the future: the " +
		"clock was wrong, or another program made it. The modification time decides when it is too old; set the clock, " +
		"and remove files that do not belong there"
}
