package logline

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/substitution"
)

// Family is a group of formats that differ only in words and are read at once.
type Family struct {
	Members []int // indexes of the formats given to [Families]

	reader *Reader
	fields map[string][]substitution.Segment
	names  int
	words  int
	by     map[string][]int // members by the words that differ
}

// Entry is the content of a line.
type Entry struct {
	Values []string // of the requested operators; "" if one is not read
	// Members lists the formats of the family that may have produced the line: those with these words.
	// It is empty if no format has them, for example after a service was removed.
	Members []int
	Words   []string // words of the line in which the formats differ
}

// Families groups formats and prepares to read operators, by name, from their lines. faults
// explains, by index, which formats cannot be read; no family contains them.
func Families(formats []Format, names ...string) (families []*Family, faults []error) {
	faults = make([]error, len(formats))
	parsed := make([]map[string][]piece, len(formats))
	var order []string
	groups := map[string][]int{}
	for i := range formats {
		fields, err := formats[i].fields(nil)
		if err != nil {
			faults[i] = err
			continue
		}
		parsed[i] = map[string][]piece{}
		var shape strings.Builder
		for _, key := range slices.Sorted(maps.Keys(formats[i].JSON)) {
			shape.WriteString(key + "\x00")
		}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			shape.WriteString("\x01" + key + "\x00")
			parsed[i][key] = pieces(fields[key])
			for _, p := range parsed[i][key] {
				shape.WriteString(p.shape())
			}
		}
		s := shape.String()
		if groups[s] == nil {
			order = append(order, s)
		}
		groups[s] = append(groups[s], i)
	}
	for _, s := range order {
		f, err := newFamily(formats, parsed, groups[s], names)
		if err != nil {
			for _, i := range groups[s] {
				faults[i] = err
			}
			continue
		}
		families = append(families, f)
	}
	return families, faults
}

// piece is an operator, a word of text, or the text between words.
type piece struct {
	seg  substitution.Segment // of an operator
	text string
	word bool
}

func (p *piece) shape() string {
	switch {
	case p.seg.Operator != "":
		return "\x02" + p.seg.Raw + "\x00"
	case p.word:
		return "\x03"
	}
	return "\x04" + p.text + "\x00"
}

func pieces(segs []substitution.Segment) []piece {
	var out []piece
	for _, s := range segs {
		if s.Operator != "" {
			out = append(out, piece{seg: s})
			continue
		}
		for rest := s.Text; rest != ""; {
			n, word := 1, wordByte(rest[0])
			for n < len(rest) && wordByte(rest[n]) == word {
				n++
			}
			out = append(out, piece{text: rest[:n], word: word})
			rest = rest[n:]
		}
	}
	return out
}

// wordByte reports whether a character may occur in the name of a service or a cluster, or in an
// address without brackets.
func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' ||
		c == ':' || c == '-'
}

func newFamily(formats []Format, parsed []map[string][]piece, members []int, names []string) (*Family, error) {
	f := &Family{Members: members, names: len(names), by: map[string][]int{}}
	first := parsed[members[0]]
	fields := map[string][]substitution.Segment{}
	words := make([][]string, len(members)) // the differing words
	asked := slices.Clone(names)
	once := !slices.ContainsFunc(members, func(i int) bool { return occurrences(parsed[i], formats[i].Name) != 1 })
	for _, key := range slices.Sorted(maps.Keys(first)) {
		var segs []substitution.Segment
		text := func(t string) {
			if n := len(segs); n > 0 && segs[n-1].Operator == "" {
				segs[n-1].Text += t
			} else {
				segs = append(segs, substitution.Segment{Text: t, Length: -1})
			}
		}
		for at, p := range first[key] {
			differs := p.word && slices.ContainsFunc(members, func(i int) bool { return parsed[i][key][at].text != p.text })
			differs = differs || once && p.word &&
				!slices.ContainsFunc(members, func(i int) bool { return parsed[i][key][at].text != formats[i].Name })
			switch {
			case p.seg.Operator != "":
				segs = append(segs, p.seg)
			case !differs:
				text(p.text)
			default:
				name := "KUMA_DESTINATION_SERVICE" // usually the only difference between the listeners of a proxy
				if n := len(asked) - len(names); n > 0 {
					name = fmt.Sprintf("%s %d", name, n+1)
				}
				asked = append(asked, name)
				segs = append(segs, substitution.Segment{Raw: "%" + name + "%", Operator: name, Placeholder: true, Length: -1})
				for j, i := range members {
					words[j] = append(words[j], parsed[i][key][at].text)
				}
			}
		}
		fields[key] = segs
	}
	var err error
	if f.reader, err = newReader(&formats[members[0]], fields, asked); err != nil {
		return nil, err
	}
	f.fields, f.words = fields, len(asked)-len(names)
	for j, i := range members {
		k := f.key(words[j])
		f.by[k] = append(f.by[k], i)
	}
	return f, nil
}

// occurrences counts a word in a format.
func occurrences(fields map[string][]piece, word string) int {
	n := 0
	for _, list := range fields {
		for i := range list {
			if list[i].word && list[i].text == word {
				n++
			}
		}
	}
	return n
}

// key joins the words of a line.
func (f *Family) key(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if f.reader.Has(f.names + i) {
			b.WriteString(w)
		}
		b.WriteByte(0)
	}
	return b.String()
}

// Has reports whether values of the operator with the given index are read.
func (f *Family) Has(i int) bool { return f.reader.Has(i) }

// Hidden returns why the values of an operator in the formats are not read. It returns nil if they
// are read, and if the formats lack the operator.
func (f *Family) Hidden(i int) error { return f.reader.Hidden(i) }

// Words reports whether the words in which the formats differ are read, or why not. A family with
// one member has none.
func (f *Family) Words() (bool, error) {
	var errs []error
	for i := range f.words {
		errs = append(errs, f.reader.Hidden(f.names+i))
	}
	err := errors.Join(errs...)
	return f.words > 0 && err == nil, err
}

// Read returns the content of a line. It returns false for a line that none of the formats can have
// produced, whatever its words.
func (f *Family) Read(line []byte) (Entry, bool) {
	values, ok := f.reader.Read(line)
	if !ok {
		return Entry{}, false
	}
	words := values[f.names:]
	return Entry{Values: values[:f.names:f.names], Members: f.by[f.key(words)], Words: words}, true
}
