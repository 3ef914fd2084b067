package clip

import "strings"

// Redacted stands for what [Secrets] takes out of a text.
const Redacted = "[redacted]"

const (
	pemBegin = "-----BEGIN "
	pemEnd   = "-----END "
	pemKey   = "PRIVATE KEY-----"

	// leastKey is the length from which on a word may be a part of a key in base64.
	leastKey = 24
)

// Secrets takes out of a text what looks like a private key: blocks of PEM, also when they are cut
// off, and words that look like base64 of random bytes. It is for texts that others write, such as
// the messages of an Envoy, and for faults, which quote what they are about. Names, paths, and
// hashes in hexadecimal stay.
func Secrets(s string) string {
	if len(s) < leastKey {
		return s
	}
	var b strings.Builder
	for {
		begin := strings.Index(s, pemBegin)
		head := -1
		if begin >= 0 {
			if head = strings.Index(s[begin:], pemKey); head > 60 { // the label of a block is short: this is a later one
				head = -1
			}
		}
		if head < 0 {
			if end := strings.Index(s, pemEnd); end >= 0 && strings.Contains(s[end:], pemKey) && (begin < 0 || end < begin) {
				b.WriteString(Redacted) // the end of a block whose begin is cut off
				s = s[end+len(pemEnd):]
				continue
			}
			if begin < 0 {
				b.WriteString(words(s))
				return b.String()
			}
			b.WriteString(words(s[:begin]) + pemBegin)
			s = s[begin+len(pemBegin):]
			continue
		}
		b.WriteString(words(s[:begin]) + Redacted)
		end := strings.Index(s[begin:], pemEnd)
		if end < 0 {
			return b.String() // cut off
		}
		s = s[begin+end+len(pemEnd):]
		if after := strings.Index(s, pemKey); after >= 0 && after < 60 {
			s = s[after+len(pemKey):]
		}
	}
}

// words replaces the words that look like keys.
func words(s string) string {
	var b strings.Builder
	kept := 0 // up to here s is in b
	for i := 0; i < len(s); {
		if class(s[i]) == 0 {
			i++
			continue
		}
		from := i
		for i < len(s) && class(s[i]) != 0 {
			i++
		}
		if looksRandom(s[from:i]) {
			b.WriteString(s[kept:from] + Redacted)
			kept = i
		}
	}
	if kept == 0 {
		return s
	}
	return b.String() + s[kept:]
}

// class tells the letters of base64 in both alphabets apart, 0 for others.
func class(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return 'A'
	case 'a' <= c && c <= 'z':
		return 'a'
	case '0' <= c && c <= '9':
		return '0'
	case c == '+', c == '/', c == '=', c == '_', c == '-':
		return '/'
	}
	return 0
}

// leastBreaks is how many breaks make a part of a word look random: base64 of random bytes has nine
// on average there, and a name that people write has one or two.
const leastBreaks = 5

// looksRandom reports whether a part of a word has the mixture of letters that base64 makes of
// random bytes. What people write has its capital letters at the beginning of words and its digits
// in a row; anything else is a break.
func looksRandom(word string) bool {
	if len(word) < leastKey || !strings.ContainsAny(word, "0123456789") {
		return false
	}
	breaks := make([]int, len(word)+1) // before each place
	small := 0                         // letters in the row of small letters before a place
	for i := range len(word) {
		breaks[i+1] = breaks[i]
		c := class(word[i])
		if i > 0 {
			switch was := class(word[i-1]); {
			case was == 'a' && c == 'A' && small < 3, was == '0' && (c == 'A' || c == 'a'),
				c == '0' && (was == 'A' || was == 'a'):
				breaks[i+1]++
			}
		}
		if small++; c != 'a' {
			small = 0
		}
	}
	for to := leastKey; to <= len(word); to++ {
		part := word[to-leastKey : to]
		if breaks[to]-breaks[to-leastKey+1] >= leastBreaks &&
			strings.ContainsFunc(part, func(r rune) bool { return class(byte(r)) == 'A' }) &&
			strings.ContainsFunc(part, func(r rune) bool { return class(byte(r)) == 'a' }) {
			return true
		}
	}
	return false
}
