package token

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"
)

// kidTime is the prefix of a key's id, so that ids sort by time: 20260102-150405-0a1b2c3d.
const kidTime = "20060102-150405"

// kidRandom is the number of hexadecimal digits after the prefix.
const kidRandom = 8

// keyTime returns the creation time of the key with an id; ok is false if the id is invalid.
func keyTime(kid string) (created time.Time, ok bool) {
	if len(kid) != len(kidTime)+1+kidRandom || kid[len(kidTime)] != '-' ||
		strings.Trim(kid[len(kidTime)+1:], "0123456789abcdef") != "" {
		return time.Time{}, false
	}
	created, err := time.Parse(kidTime, kid[:len(kidTime)])
	return created, err == nil
}

// newKeyID returns an id that sorts after all in list, whose first is the newest.
func newKeyID(now time.Time, list []Key) string {
	now = now.UTC().Truncate(time.Second)
	if len(list) > 0 && !now.After(list[0].Created) {
		now = list[0].Created.Add(time.Second)
	}
	return now.Format(kidTime) + "-" + randomHex(kidRandom/2)
}

// randomHex returns n random bytes in hexadecimal.
func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
