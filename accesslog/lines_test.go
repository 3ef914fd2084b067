package accesslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// naive returns the expected output for an input: its lines, each with an LF, split into pieces of
// max bytes.
func naive(input []byte, max int) (stored []byte, oversize, unterminated uint64) {
	for len(input) > 0 {
		line, rest, ended := bytes.Cut(input, newline)
		if input = rest; !ended {
			unterminated++
		}
		if len(line) > max {
			oversize++
		}
		for len(line) > max {
			stored = append(append(stored, line[:max]...), '\n')
			line = line[max:]
		}
		stored = append(append(stored, line...), '\n')
	}
	return stored, oversize, unterminated
}

// source returns its data in reads of the sizes in steps; 0 stands for an idle time.
type source struct {
	rest  []byte
	steps []byte
	at    int
}

var errIdle = errors.New("nothing is there")

func (s *source) read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, errors.New("there is no space to read into")
	}
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := len(s.rest)
	if len(s.steps) > 0 {
		step := int(s.steps[s.at%len(s.steps)])
		s.at++
		if n = step * step; n == 0 {
			if s.at > 1000 {
				n = 1
			} else {
				return 0, errIdle
			}
		}
	}
	n = copy(b, s.rest[:min(n, len(s.rest))])
	s.rest = s.rest[n:]
	return n, nil
}

// frame passes all data of a source to a destination, and retries transient errors.
func frame(t testing.TB, l *Lines, s *source) {
	t.Helper()
	retry := func(f func(context.Context) error) {
		for i := 0; ; i++ {
			err := f(context.Background())
			if err == nil {
				return
			}
			if !errors.Is(err, errPassing) || i > 1<<20 {
				t.Fatal(err)
			}
			if _, err := l.Fill(s.read); !errors.Is(err, ErrPending) {
				t.Fatalf("a read while lines are pending: %v", err)
			}
		}
	}
	for {
		_, err := l.Fill(s.read)
		retry(l.Flush)
		if err == io.EOF {
			break
		}
		if err == errIdle {
			l.Idle()
		} else if err != nil {
			t.Fatal(err)
		}
	}
	retry(l.Finish)
	if l.buf != nil {
		t.Error("the buffer is not released")
	}
}

var errPassing = errors.New("not now")

// passing accepts the first lines of a batch, as many as turns specifies, and fails sometimes.
func passing(turns []byte) func([]byte) (int, error) {
	calls := 0
	return func(batch []byte) (int, error) {
		if len(turns) == 0 {
			return len(batch), nil
		}
		k := int(turns[calls%len(turns)])
		calls++
		if k == 0 && calls%3 != 0 {
			return 0, errPassing
		}
		n := 0
		for ; k >= 0 && n < len(batch); k-- {
			n += bytes.IndexByte(batch[n:], '\n') + 1
		}
		return n, nil
	}
}

func checkFramed(t testing.TB, input, steps, turns []byte, max int) {
	t.Helper()
	to := &collector{accept: passing(turns)}
	count := &Counters{}
	frame(t, &Lines{To: to, Count: count, Max: max}, &source{rest: input, steps: steps})
	want, oversize, unterminated := naive(input, max)
	if got := to.Bytes(); !bytes.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		t.Fatalf("max %d: %d bytes are stored and not %d; they differ from byte %d on: %.60q, want %.60q",
			max, len(got), len(want), i, got[i:], want[i:])
	}
	n := uint64(bytes.Count(want, newline))
	if s := count.Stats(); s.In != n || s.Written != n || s.InFlight != 0 || s.BytesIn != uint64(len(input)) ||
		s.Oversize != oversize || s.Unterminated != unterminated {
		t.Fatalf("stats %+v; want %d lines, %d oversize, %d unterminated", s, n, oversize, unterminated)
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("one\ntwo\r\n\n\x00\xff\nhalf"), []byte{2, 0, 1}, []byte{}, uint16(8))
	f.Add(bytes.Repeat([]byte("a long line without an end "), 40), []byte{3}, []byte{0, 1}, uint16(16))
	f.Add(bytes.Repeat([]byte("x\n"), 500), []byte{0, 9}, []byte{0, 200}, uint16(1))
	f.Fuzz(func(t *testing.T, input, steps, turns []byte, max uint16) {
		if len(input) > 1<<16 {
			return
		}
		checkFramed(t, input, steps, turns, int(max)+1)
	})
}

// TestLines checks output against input for many sizes of reads and lines.
func TestLines(t *testing.T) {
	var mixed bytes.Buffer
	count, long := 3000, 2<<20
	if testing.Short() {
		count, long = 200, 200<<10
	}
	for i := range count {
		fmt.Fprintf(&mixed, "%d %s\n", i, strings.Repeat("x", i*i%9000))
	}
	mixed.WriteString("the end")
	for _, in := range []string{
		"", "\n", "\n\n", "a", "a\n", "a\nb", strings.Repeat("y", 5000), strings.Repeat("y", long) + "\nz\n", mixed.String(),
	} {
		for _, steps := range [][]byte{nil, {255}, {1, 0}, {37, 0, 11, 255}} {
			if len(steps) > 0 && steps[0] == 1 && len(in) > 1<<16 {
				continue
			}
			for _, max := range []int{1, 2, 100, BaseBuffer - 1, BaseBuffer, FlowBuffer, DefaultMaxLine} {
				if max < 100 && len(in) > 1<<16 {
					continue
				}
				checkFramed(t, []byte(in), steps, nil, max)
				checkFramed(t, []byte(in), steps, []byte{0, 3, 250}, max)
			}
		}
	}
}

// TestLongestLine checks that a line of maximum length is stored whole, and a longer one in two
// pieces.
func TestLongestLine(t *testing.T) {
	for _, n := range []int{DefaultMaxLine - 1, DefaultMaxLine, DefaultMaxLine + 1, 10*DefaultMaxLine + 5} {
		checkFramed(t, []byte(strings.Repeat("x", n)+"\nnext\n"), nil, nil, DefaultMaxLine)
		checkFramed(t, []byte(strings.Repeat("x", n)), nil, nil, DefaultMaxLine)
	}
}

// TestLinesWithoutMemory checks that without memory, lines longer than a base buffer are stored in
// pieces, nothing is lost, and all memory is released.
func TestLinesWithoutMemory(t *testing.T) {
	const size = 100 << 10
	memory := NewBuffers(size)
	count := &Counters{}
	to := &collector{}
	frame(t, &Lines{To: to, Count: count, Buffers: memory},
		&source{rest: []byte(strings.Repeat("x", 1<<20) + "\nshort\n")})
	if got := strings.ReplaceAll(to.String(), "\n", ""); got != strings.Repeat("x", 1<<20)+"short" {
		t.Errorf("%d bytes are stored", len(got))
	}
	for line := range strings.Lines(to.String()) {
		if len(line) > FlowBuffer {
			t.Errorf("a line has %d bytes: more than there was memory for", len(line))
		}
	}
	if s := count.Stats(); s.Oversize != 1 || s.Unterminated != 0 || s.In != uint64(bytes.Count(to.Bytes(), newline)) ||
		s.Written != s.In {
		t.Errorf("stats %+v", s)
	}
	if left := memory.Left(); left != size {
		t.Errorf("%d of %d bytes are left", left, size)
	}
}

// TestLinesInTurns checks that no batch exceeds Quantum, except a single longer line.
func TestLinesInTurns(t *testing.T) {
	to := &collector{accept: func(b []byte) (int, error) {
		if len(b) > Quantum && bytes.Count(b, newline) > 1 {
			t.Errorf("a batch has %d bytes", len(b))
		}
		return len(b), nil
	}}
	frame(t, &Lines{To: to, Count: &Counters{}},
		&source{rest: []byte(strings.Repeat("x", 900<<10) + "\n" + strings.Repeat("short\n", 400<<10))})
}

// TestLinesIdle checks that an idle source uses little memory for a partial line, and none
// otherwise.
func TestLinesIdle(t *testing.T) {
	to := &collector{}
	l := &Lines{To: to, Count: &Counters{}}
	s := &source{rest: []byte("one\ntwo"), steps: []byte{255, 0}}
	if _, err := l.Fill(s.read); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if l.Idle(); l.Size() != 512 {
		t.Errorf("%d bytes are used for a partial line", l.Size())
	}
	s.rest = []byte("\n")
	if _, err := l.Fill(func(b []byte) (int, error) { return copy(b, "\n"), nil }); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if l.Idle(); l.buf != nil || to.String() != "one\ntwo\n" {
		t.Errorf("stored: %q", to.String())
	}
}

// TestLinesDropped checks that dropped lines are counted, including a partial line.
func TestLinesDropped(t *testing.T) {
	count := &Counters{}
	l := &Lines{To: &collector{accept: func([]byte) (int, error) { return 0, errPassing }}, Count: count}
	s := &source{rest: []byte("one\ntwo\nthr")}
	if _, err := l.Fill(s.read); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(context.Background()); !errors.Is(err, errPassing) {
		t.Fatal(err)
	}
	if s := count.Stats(); s.In != 2 || s.InFlight != 2 {
		t.Errorf("stats %+v", s)
	}
	l.Drop(CauseStopped)
	if s := count.Stats(); s.In != 3 || s.Dropped[CauseStopped] != 3 || s.InFlight != 0 || l.buf != nil {
		t.Errorf("stats %+v", s)
	}
}

// dropper is a destination that drops the first line of each batch and reports it.
type dropper struct{ collector }

func (d *dropper) Append(ctx context.Context, batch []byte) (int, int, error) {
	_, err := d.Write(ctx, batch[bytes.IndexByte(batch, '\n')+1:])
	return len(batch), 1, err
}

// TestLinesDroppedByTheDestination checks that such lines count as dropped, not as written.
func TestLinesDroppedByTheDestination(t *testing.T) {
	count := &Counters{}
	to := &dropper{}
	frame(t, &Lines{To: to, Count: count}, &source{rest: []byte("one\ntwo\nthree")})
	if s := count.Stats(); to.String() != "two\n" || s.In != 3 || s.Written != 1 || s.Dropped[CauseDiskFull] != 2 {
		t.Errorf("stored %q, stats %+v", to.String(), s)
	}
}

// TestDestinationTakesNothing checks that a destination that accepts nothing and returns no error
// does not block its source forever.
func TestDestinationTakesNothing(t *testing.T) {
	l := &Lines{To: &collector{accept: func([]byte) (int, error) { return 0, nil }}, Count: &Counters{}}
	if _, err := l.Fill((&source{rest: []byte("one\n")}).read); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(context.Background()); err == nil {
		t.Error("no error")
	}
}

// TestLinesAllocations checks that a source that stops within a line each time allocates nothing.
func TestLinesAllocations(t *testing.T) {
	l := &Lines{To: &collector{accept: func(b []byte) (int, error) { return len(b), nil }}, Count: &Counters{},
		Buffers: NewBuffers(DefaultMemory)}
	data := []byte(strings.Repeat("x", 299) + "\n" + strings.Repeat("y", 200))
	read := func(b []byte) (int, error) { return copy(b, data), nil }
	turn := func() {
		if _, err := l.Fill(read); err != nil {
			t.Fatal(err)
		}
		if err := l.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		l.Idle()
	}
	turn()
	to := l.To.(*collector)
	l.To = nowhere{}
	if n := testing.AllocsPerRun(1000, turn); n >= 1 {
		t.Errorf("%v allocations for each read", n)
	}
	l.To = to
	if err := l.Finish(context.Background()); err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("y", 200) + "\n"; !strings.HasSuffix(to.String(), want) {
		t.Errorf("the partial line is %q", to.Bytes())
	}
}

// nowhere accepts all lines.
type nowhere struct{}

func (nowhere) Write(_ context.Context, b []byte) (int, error) { return len(b), nil }
