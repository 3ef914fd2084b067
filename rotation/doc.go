// Package rotation writes lines to a file that is rotated by size. Backups are limited by number
// and age, and no line is lost. A record is the bytes up to and including an LF; its content does
// not matter.
//
// Guarantees, as long as the file system works:
//
//   - [File.Write] stores whole lines, once, in the order of the calls. After a write that fails
//     halfway, the file is truncated to the last whole line and the write is retried. If the disk
//     is full, writers wait, or lines are dropped, counted, and noted in the file ([OnFull]).
//   - No file is larger than [Limits].MaxFileSize, except a file with a single longer line.
//   - No backup is overwritten. Backup names are those of lumberjack.v2,
//     NAME-2006-01-02T15-04-05.000.EXT in UTC, followed by .gz if compressed. The times in names
//     always increase, even if the clock stands still or is set back.
//   - The limits for number and age of backups are independent. The age is determined by the name.
//     Neither includes the active file, so up to MaxFileSize × (MaxFiles + 1) are on disk.
//   - Files with other names are never changed, and only one process at a time uses a file.
//   - Stored lines survive the end of the process. A power failure loses at most the last second
//     ([Sync]).
//
// The directory must belong to the user of the process or to root, must not be a symbolic link, and
// must not be writable by others. All operations are relative to the open directory, and do not
// follow links in it.
//
// [Plain] is for logs without these guarantees. It writes through lumberjack.
//
// The package starts no goroutines, except the one that lumberjack starts for a [Plain]. Callers
// run [File.Run] and [Plain.Run].
package rotation
