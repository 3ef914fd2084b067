package token

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"
)

// kidTime begins the id of a key, so that ids sort by time: 20260102-150405-0a1b2c3d.
const kidTime = "20060102-150405"

// kidRandom are the hexadecimal digits behind it.
const kidRandom = 8

// keyTime returns when the key of an id was made; ok is false when it is no id.
func keyTime(kid string) (created time.Time, ok bool) {
	if len(kid) != len(kidTime)+1+kidRandom || kid[len(kidTime)] != '-' ||
		strings.Trim(kid[len(kidTime)+1:], "0123456789abcdef") != "" {
		return time.Time{}, false
	}
	created, err := time.Parse(kidTime, kid[:len(kidTime)])
	return created, err == nil
}

// newKeyID returns an id that sorts behind all of list, whose first is the newest.
func newKeyID(now time.Time, list []Key) string {
	now = now.UTC().Truncate(time.Second)
	if len(list) > 0 && !now.After(list[0].Created) {
		now = list[0].Created.Add(time.Second)
	}
	return now.Format(kidTime) + "-" + randomHex(kidRandom/2)
}

// randomHex returns hexadecimal digits of n random bytes.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
