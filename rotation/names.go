package rotation

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Elements of backup names. The first two are those of lumberjack.
const (
	stampFormat = "2006-01-02T15-04-05.000"
	gzipSuffix  = ".gz"
	tempSuffix  = ".tmp"
	lockSuffix  = ".lock"
	// maxBaseLen leaves space for a dot, a dash, the time, and both suffixes within 255 bytes.
	maxBaseLen = 255 - 2 - len(stampFormat) - len(gzipSuffix) - len(tempSuffix) - 1
)

// lastStamp is the latest timestamp of a backup name, in ms since 1970: the end of the year 8999.
// Names with later timestamps are not backups, so the next timestamp always has a four-digit year.
var lastStamp = time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1

// naming generates and parses the names that belong to an active file.
type naming struct{ base, prefix, ext string }

func namesOf(base string) naming {
	ext := filepath.Ext(base)
	return naming{base: base, prefix: strings.TrimSuffix(base, ext) + "-", ext: ext}
}

// backup returns the name of the backup with a timestamp in ms since 1970.
func (n naming) backup(stamp int64) string {
	return n.prefix + time.UnixMilli(stamp).UTC().Format(stampFormat) + n.ext
}

func (n naming) lock() string              { return "." + n.base + lockSuffix }
func (n naming) temp(stamp int64) string   { return "." + n.backup(stamp) + gzipSuffix + tempSuffix }
func (n naming) compressed(s int64) string { return n.backup(s) + gzipSuffix }

// parse returns the timestamp of a backup name, and whether the backup is compressed. ok is true
// only for names that backup or compressed would return.
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

// isTemp reports whether a name is a temporary file of compression.
func (n naming) isTemp(name string) bool {
	inner, ok := strings.CutSuffix(name, tempSuffix)
	if !ok || !strings.HasPrefix(inner, ".") {
		return false
	}
	_, gz, ok := n.parse(inner[1:])
	return ok && gz
}

// backup is a rotated file: plain, compressed, or briefly both.
type backup struct {
	stamp     int64 // ms since 1970
	plain, gz bool
	failed    bool // compression failed; the next scan resets it
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

// surplus returns how many of the oldest backups exceed the limits. backups must be sorted.
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
