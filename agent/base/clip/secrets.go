package clip

import (
	"strconv"
	"strings"
)

// Redacted replaces the secrets that [Secrets] finds.
const Redacted = "[redacted]"

const (
	pemBegin = "-----BEGIN "
	pemEnd   = "-----END "
	pemKey   = "PRIVATE KEY-----"

	// leastKey is the minimum length of a word that may be part of a base64 key.
	leastKey = 24
)

// Secrets replaces private keys in a text by [Redacted]: PEM blocks, including truncated ones, and
// words that look like base64 of random bytes. Use it for text from other programs, such as Envoy's
// messages, and for errors that quote a document. Names, paths, and hexadecimal hashes are
// unchanged. If the percent escapes of a URI hide a key, the result is without escapes.
func Secrets(s string) string {
	plain := s
	for depth := 0; strings.Contains(plain, "%") && depth < maxEscapes; depth++ {
		plain = Unescaped(plain)
	}
	if plain != s {
		plain = spaces.Replace(plain)
		if r := secrets(plain); r != plain {
			return r
		}
	}
	return secrets(s)
}

// maxEscapes limits how often a text is escaped: twice is a URI in a parameter of another URI.
const maxEscapes = 3

// spaces replaces the plus signs of a query in the labels of PEM blocks.
var spaces = strings.NewReplacer("-----BEGIN+", pemBegin, "-----END+", pemEnd, "PRIVATE+KEY-----", pemKey)

func secrets(s string) string {
	if len(s) < leastKey {
		return s
	}
	var b strings.Builder
	for {
		begin := strings.Index(s, pemBegin)
		head := -1
		if begin >= 0 {
			if head = strings.Index(s[begin:], pemKey); head > 60 { // labels are short, so this is the label of a later block
				head = -1
			}
		}
		if head < 0 {
			if end := strings.Index(s, pemEnd); end >= 0 && strings.Contains(s[end:], pemKey) && (begin < 0 || end < begin) {
				b.WriteString(Redacted) // the end of a block without a beginning
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
	copied := 0 // s[:copied] is in b
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
			b.WriteString(s[copied:from] + Redacted)
			copied = i
		}
	}
	if copied == 0 {
		return s
	}
	return b.String() + s[copied:]
}

// class returns the character class of a base64 character in either alphabet, and 0 for others.
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

// leastBreaks is the number of breaks from which a part of a word looks random. Base64 of random
// bytes has nine on average, and names have one or two.
const leastBreaks = 5

// looksRandom reports whether a part of a word mixes characters like base64 of random bytes. Names
// have upper case at the beginning of words and digits in groups; any other change of class is a
// break.
func looksRandom(word string) bool {
	if len(word) < leastKey || !strings.ContainsAny(word, "0123456789") {
		return false
	}
	breaks := make([]int, len(word)+1) // before each index
	small := 0                         // number of lower-case letters in a row
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
		piece := word[to-leastKey : to]
		if breaks[to]-breaks[to-leastKey+1] >= leastBreaks &&
			strings.ContainsFunc(piece, func(r rune) bool { return class(byte(r)) == 'A' }) &&
			strings.ContainsFunc(piece, func(r rune) bool { return class(byte(r)) == 'a' }) {
			return true
		}
	}
	return false
}

// Unescaped decodes the valid percent escapes of a URI (RFC 3986, section 2.1).
func Unescaped(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
