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

// maxLine is the length in bytes above which a line is not parsed.
const maxLine = 64 << 10

// eachLine calls take for each line that next returns, until io.EOF. For a line longer than
// maxLine, it calls take once, with the first part and long set.
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

// stream returns a function that reads the lines of r like [rotation.Reader.Next].
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

// Span is the time between the first and the last of some lines; zero if no line has a time.
type Span struct{ First, Last time.Time }

// add extends the span to include a time; the zero time is ignored.
func (s *Span) add(at time.Time) {
	if !at.IsZero() && (s.First.IsZero() || at.Before(s.First)) {
		s.First = at
	}
	if at.After(s.Last) {
		s.Last = at
	}
}

// Times is a [Span] in documents; empty if no line has a time.
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

// String formats the times as a suffix to a number of connections.
func (t Times) String() string {
	switch {
	case t.First == "":
		return ""
	case t.First == t.Last:
		return " at " + t.First
	}
	return " from " + t.First + " to " + t.Last
}

// addrPort parses an address and converts IPv4-mapped IPv6 to IPv4.
func addrPort(s string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddrPort(s)
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), err == nil
}

// yamlText encodes a document as YAML, including comments.
func yamlText(doc any) (string, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	err := errors.Join(enc.Encode(doc), enc.Close())
	return out.String(), err
}
