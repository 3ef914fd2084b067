// Package logpaths decides which part of the agent, and which policy, may write a log file.
//
// Two writers of one file, or a file that has the name of another file's backup, would destroy or
// forge lines: rotation removes the oldest backups, and readers trust names. So each path has one
// owner, and a file in the agent's own directories belongs to the agent.
//
// [Rules] decide by paths only. They are an input of computed config. A [Registry] also follows
// links and mounts of the node, and knows the files that are open now.
package logpaths
