// Package rotation keeps a file of lines that is rotated by size and whose backups are limited by
// number and age, without losing a line. It knows nothing of what the lines say: a record is the
// bytes up to and with an LF.
//
// Promises, as long as the file system keeps its own:
//
//   - What [File.Write] has stored is whole lines, once, in the order of the calls. A write that
//     fails in the middle is taken back to the last line that is whole, and tried again; a full
//     disk makes writers wait, or drops lines that are counted and noted in the file ([OnFull]).
//   - No file is larger than [Limits].MaxFileSize, but one that holds a single longer line.
//   - No backup is overwritten. Their names are those of lumberjack.v2,
//     NAME-2006-01-02T15-04-05.000.EXT in UTC with .gz behind it when compressed, and always
//     increase: where the clock stands still or goes back, the time in a name does not.
//   - Number and age of backups are separate limits. The age is that of the name. Neither counts or
//     removes the active file, so up to MaxFileSize × (MaxFiles + 1) are on disk.
//   - Files of other names are never touched, and one process at a time uses a file.
//   - After the end of the process nothing that was stored is missing; after a power failure at
//     most a second of it ([Sync]).
//
// The directory must belong to the user of the process or to root, must not be a symbolic link, and
// others must not be able to write in it. Everything is done relative to the open directory, and no
// link in it is followed.
//
// [Plain] is for logs without these promises. It writes through lumberjack.
//
// The package starts no goroutine but the one that lumberjack starts for a [Plain]. [File.Run] and
// [Plain.Run] are called in one by whoever opens the file.
package rotation
