package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
)

// Annotations of the chain. Each event has a number and the hash of the previous line.
const (
	AnnotationNumber   = "nearside.io/number"   // 1 for the first event of a chain
	AnnotationPrevious = "nearside.io/previous" // SHA-256 of the previous line without LF, in hex
	// AnnotationChain is set in the first event after a start of the agent; see [Start].
	AnnotationChain = "nearside.io/chain"
)

// Start is why an event does not directly follow an event of the same process.
type Start string

const (
	StartNew     Start = "new"     // there is no earlier line
	StartPlain   Start = "plain"   // earlier lines have no hashes; an older version wrote them
	StartResumed Start = "resumed" // the end of the log is the last event that the agent recorded
	// StartUnrecorded means that the agent has no record of its last event. The chain continues with
	// the last line.
	StartUnrecorded Start = "unrecorded"
	// StartUnreadable means that the end of the log is no event. The chain continues with the last
	// event.
	StartUnreadable Start = "unreadable"
	// StartChanged means that the log differs from the agent's record. The chain continues with the
	// recorded event.
	StartChanged Start = "changed"
)

// Hash is the SHA-256 of a line without LF.
type Hash [sha256.Size]byte

// HashOf returns the hash of a line, with or without LF.
func HashOf(line []byte) Hash { return sha256.Sum256(bytes.TrimSuffix(line, []byte{'\n'})) }

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText returns the hash in hex.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText parses a hash in hex.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != 2*len(h) {
		return hex.ErrLength
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// Link identifies an event of a chain: its number and the hash of its line. The zero value precedes
// the first event.
type Link struct {
	Number uint64 `json:"number"`
	Hash   Hash   `json:"hash"`
}

// Parts of a line with its place in the chain. The place is always at the end, so that it is found
// without decoding the line.
const (
	chainBegin    = `"` + AnnotationNumber + `":"`
	chainPrevious = `","` + AnnotationPrevious + `":"`
	chainEnd      = `"}}`
	maxDigits     = 20
)

// Append appends a line of [Event.Append] with its place in the chain, and makes it the last event.
// start is empty for an event that follows another one of the same process.
func (l *Link) Append(dst, line []byte, start Start) []byte {
	begin := len(dst)
	line = bytes.TrimSuffix(line, []byte{'\n'})
	if bytes.HasSuffix(line, []byte(chainEnd)) { // it has annotations
		dst = append(append(dst, line[:len(line)-2]...), ',')
	} else {
		dst = append(append(dst, line[:len(line)-1]...), `,"annotations":{`...)
	}
	if start != "" {
		dst = append(append(append(dst, `"`+AnnotationChain+`":"`...), start...), `",`...)
	}
	dst = strconv.AppendUint(append(dst, chainBegin...), l.Number+1, 10)
	dst = hex.AppendEncode(append(dst, chainPrevious...), l.Hash[:])
	dst = append(dst, chainEnd...)
	*l = Link{Number: l.Number + 1, Hash: HashOf(dst[begin:])}
	return append(dst, '\n')
}

// slot is the place of a line in the chain.
type slot struct {
	number   uint64
	previous Hash
	start    Start
}

// slotOf returns the place of a line without LF. ok is false for a line without one.
func slotOf(line []byte) (p slot, ok bool) {
	rest, ok := bytes.CutSuffix(line, []byte(chainEnd))
	if !ok || line[0] != '{' || len(rest) < 2*len(p.previous)+len(chainPrevious) {
		return p, false
	}
	at := len(rest) - 2*len(p.previous)
	if p.previous.UnmarshalText(rest[at:]) != nil {
		return p, false
	}
	if rest, ok = bytes.CutSuffix(rest[:at], []byte(chainPrevious)); !ok {
		return p, false
	}
	digits := len(rest)
	for digits > 0 && len(rest)-digits < maxDigits && '0' <= rest[digits-1] && rest[digits-1] <= '9' {
		digits--
	}
	n, err := strconv.ParseUint(string(rest[digits:]), 10, 64)
	if err != nil || n == 0 {
		return p, false
	}
	p.number = n
	if rest, ok = bytes.CutSuffix(rest[:digits], []byte(chainBegin)); !ok {
		return p, false
	}
	if rest, ok = bytes.CutSuffix(rest, []byte(`",`)); ok {
		if i := bytes.LastIndexByte(rest, '"'); i >= 0 && bytes.HasSuffix(rest[:i], []byte(`"`+AnnotationChain+`":`)) {
			p.start = Start(rest[i+1:])
		}
	}
	return p, true
}

// LinkOf returns the link of a line, with or without LF. ok is false for a line without a place in
// a chain.
func LinkOf(line []byte) (l Link, ok bool) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	p, ok := slotOf(line)
	if !ok {
		return Link{}, false
	}
	return Link{Number: p.number, Hash: HashOf(line)}, true
}

// timeOf returns the time of an event, or "".
func timeOf(line []byte) string {
	var e struct {
		At string `json:"stageTimestamp"`
	}
	if json.Unmarshal(line, &e) != nil {
		return ""
	}
	return text(e.At, len(timeForm))
}
