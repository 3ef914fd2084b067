package rotation

import (
	"cmp"
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

// owns reports whether a name belongs to the active file: a backup, its lock, or a temporary file.
func (n naming) owns(name string) bool {
	_, _, is := n.parse(name)
	return is || n.isTemp(name) || name == n.lock()
}

// Collide reports whether two files in one directory use a common name for themselves, their
// backups, or their locks. Both are names without a directory.
func Collide(a, b string) bool {
	x, y := namesOf(a), namesOf(b)
	return a == b || x.owns(b) || y.owns(a) ||
		x.prefix == y.prefix && (x.ext+gzipSuffix == y.ext || y.ext+gzipSuffix == x.ext)
}

// OwnerOf returns the active file to which a file name would belong, and as what: a backup, a lock
// file, or a temporary file. Both are "" for a name that may be the name of an active file.
func OwnerOf(name string) (base, what string) {
	if inner, ok := strings.CutSuffix(name, lockSuffix); ok && len(inner) > 1 && inner[0] == '.' {
		return inner[1:], "lock file"
	}
	if inner, ok := strings.CutSuffix(name, tempSuffix); ok && len(inner) > 1 && inner[0] == '.' {
		if base := ofBackup(inner[1:]); base != "" {
			return base, "temporary file"
		}
	}
	if base := ofBackup(name); base != "" {
		return base, "backup"
	}
	return "", ""
}

// ofBackup returns the active file of a backup name, or "" for another name.
func ofBackup(name string) string {
	for i := range len(name) - len(stampFormat) {
		if name[i] != '-' {
			continue
		}
		ext := name[i+1+len(stampFormat):]
		for _, ext := range [...]string{ext, strings.TrimSuffix(ext, gzipSuffix)} {
			base := name[:i] + ext
			if _, _, ok := namesOf(base).parse(name); ok && base != "" {
				return base
			}
		}
	}
	return ""
}

// backup is a rotated file: plain, compressed, or briefly both.
type backup struct {
	stamp     int64 // ms since 1970
	modified  int64 // ms since 1970, of the file
	plain, gz bool
	failed    bool // compression failed; the next scan resets it
}

// future reports whether the time in the name is later than now, so the name does not tell the age.
func (b *backup) future(now time.Time) bool { return b.stamp > now.Add(futureAfter).UnixMilli() }

// futureAfter is how far a name may be ahead of the clock, which may have moved back a little.
const futureAfter = time.Hour

func byStamp(a, b backup) int { return cmp.Compare(a.stamp, b.stamp) }

// surplus returns the backups that exceed the limits. backups must be sorted. The modification time
// decides about the age of a backup with a time in the future, unless it is in the future as well.
func surplus(backups []backup, l Limits, now time.Time) []backup {
	gone := 0
	if l.MaxFiles > 0 {
		gone = max(0, len(backups)-l.MaxFiles)
	}
	if l.MaxFileAge == 0 {
		return backups[:gone]
	}
	oldest := now.Add(-time.Duration(l.MaxFileAge) * 24 * time.Hour).UnixMilli()
	i, _ := slices.BinarySearchFunc(backups, backup{stamp: oldest}, byStamp)
	gone = max(gone, i)
	out := backups[:gone:gone]
	for _, b := range backups[max(gone, len(backups)-futures(backups, now)):] {
		if b.modified < oldest {
			out = append(out, b)
		}
	}
	return out
}

// futures returns the number of backups with a time in the future. backups must be sorted.
func futures(backups []backup, now time.Time) int {
	n := 0
	for i := len(backups) - 1; i >= 0 && backups[i].future(now); i-- {
		n++
	}
	return n
}
