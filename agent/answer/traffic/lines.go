package traffic

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/netip"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/rotation"
)

// maxLine is the longest line that is counted, in bytes.
const maxLine = 64 << 10

// eachLine calls take for each line that next returns, until io.EOF. A line longer than maxLine is
// passed once, as its first part, with long set.
func eachLine(next func() (rotation.Line, error), take func(text []byte, long bool)) error {
	within := false
	for {
		line, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case !within:
			take(line.Text, line.More)
		}
		within = line.More
	}
}

// stream returns a function that reads the lines of r, as [rotation.Reader.Next] reads those of
// files.
func stream(r io.Reader) func() (rotation.Line, error) {
	in := bufio.NewReaderSize(r, maxLine)
	return func() (rotation.Line, error) {
		text, err := in.ReadSlice('\n')
		switch {
		case err == nil:
			return rotation.Line{Text: text[:len(text)-1]}, nil
		case errors.Is(err, bufio.ErrBufferFull):
			return rotation.Line{Text: text, More: true}, nil
		case errors.Is(err, io.EOF) && len(text) > 0:
			return rotation.Line{Text: text, Open: true}, nil
		}
		return rotation.Line{}, err
	}
}

// Span is the time between the first and the last of some lines, zero where no line has a time.
type Span struct{ First, Last time.Time }

// add extends the span to a time; the zero time changes nothing.
func (s *Span) add(at time.Time) {
	if !at.IsZero() && (s.First.IsZero() || at.Before(s.First)) {
		s.First = at
	}
	if at.After(s.Last) {
		s.Last = at
	}
}

// Times is a [Span] in documents, "" where no line has a time.
type Times struct {
	First string `json:"first,omitempty"`
	Last  string `json:"last,omitempty"`
}

func (s *Span) times() Times {
	if s.First.IsZero() {
		return Times{}
	}
	return Times{s.First.UTC().Format(time.RFC3339), s.Last.UTC().Format(time.RFC3339)}
}

// String is the span as it follows a number of connections.
func (t Times) String() string {
	switch {
	case t.First == "":
		return ""
	case t.First == t.Last:
		return " at " + t.First
	}
	return " from " + t.First + " to " + t.Last
}

// addrPort reads an address, IPv4 also where it is mapped into IPv6.
func addrPort(s string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddrPort(s)
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), err == nil
}

// yamlText is a document as YAML with comments, as people write it.
func yamlText(doc any) (string, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	err := errors.Join(enc.Encode(doc), enc.Close())
	return out.String(), err
}
