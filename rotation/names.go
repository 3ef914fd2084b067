package rotation

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Parts of the names of backups; the first two are lumberjack's.
const (
	stampFormat = "2006-01-02T15-04-05.000"
	gzipSuffix  = ".gz"
	tempSuffix  = ".tmp"
	lockSuffix  = ".lock"
	// maxBaseLen leaves room in the 255 bytes of a name for a dot, a dash, the time and both suffixes.
	maxBaseLen = 255 - 2 - len(stampFormat) - len(gzipSuffix) - len(tempSuffix) - 1
)

// lastStamp is the latest time in the name of a backup, in ms since 1970: the end of the year 8999.
// Later ones are names of others, so that the next time always has four digits for its year.
var lastStamp = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1

// naming knows the names that belong to one active file.
type naming struct{ base, prefix, ext string }

func namesOf(base string) naming {
	ext := filepath.Ext(base)
	return naming{base: base, prefix: strings.TrimSuffix(base, ext) + "-", ext: ext}
}

// backup returns the name of the backup with a stamp, in ms since 1970.
func (n naming) backup(stamp int64) string {
	return n.prefix + time.UnixMilli(stamp).UTC().Format(stampFormat) + n.ext
}

func (n naming) lock() string              { return "." + n.base + lockSuffix }
func (n naming) temp(stamp int64) string   { return "." + n.backup(stamp) + gzipSuffix + tempSuffix }
func (n naming) compressed(s int64) string { return n.backup(s) + gzipSuffix }

// parse returns the stamp of a name, and whether the file is compressed. ok is false for the names
// of others: only what backup or compressed would return is a backup.
func (n naming) parse(name string) (stamp int64, gz, ok bool) {
	rest, ok := strings.CutPrefix(name, n.prefix)
	if !ok || len(rest) < len(stampFormat) {
		return 0, false, false
	}
	t, err := time.Parse(stampFormat, rest[:len(stampFormat)])
	if err != nil {
		return 0, false, false
	}
	stamp = t.UnixMilli()
	if stamp < 0 || stamp > lastStamp {
		return 0, false, false
	}
	switch name {
	case n.backup(stamp):
		return stamp, false, true
	case n.compressed(stamp):
		return stamp, true, true
	}
	return 0, false, false
}

// isTemp reports whether a name is that of a file that compression was writing.
func (n naming) isTemp(name string) bool {
	inner, ok := strings.CutSuffix(name, tempSuffix)
	if !ok || !strings.HasPrefix(inner, ".") {
		return false
	}
	_, gz, ok := n.parse(inner[1:])
	return ok && gz
}

// backup is a rotated file: plain, compressed, or for a short time both.
type backup struct {
	stamp     int64 // ms since 1970
	plain, gz bool
	failed    bool // to be compressed; looked at again with the next scan
}

func byStamp(a, b backup) int {
	switch {
	case a.stamp < b.stamp:
		return -1
	case a.stamp > b.stamp:
		return 1
	}
	return 0
}

// surplus returns how many of the oldest backups go. They are sorted by stamp, so what is too old
// and what is too many are both at the front.
func surplus(backups []backup, l Limits, now time.Time) int {
	gone := 0
	if l.MaxFiles > 0 {
		gone = max(0, len(backups)-l.MaxFiles)
	}
	if l.MaxFileAge > 0 {
		oldest := now.Add(-time.Duration(l.MaxFileAge) * 24 * time.Hour).UnixMilli()
		i, _ := slices.BinarySearchFunc(backups, oldest, func(b backup, t int64) int { return byStamp(b, backup{stamp: t}) })
		gone = max(gone, i)
	}
	return gone
}
