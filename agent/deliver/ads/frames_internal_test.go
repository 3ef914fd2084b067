package ads

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// followed feeds bytes in pieces and returns the reported events and the state at the end.
func followed(raw []byte, sizes []int) (events []string, reserved int64, partial int, err error) {
	f := frames{maxPartial: 8}
	f.begin = func(size int) (int64, error) {
		if size == 666 {
			return 0, errors.New("refused")
		}
		events = append(events, fmt.Sprint("begin ", size))
		reserved += int64(size)
		return int64(size), nil
	}
	f.full = func(n int64) { events = append(events, fmt.Sprint("full ", n)); reserved -= n }
	f.drop = func(n int64) { events = append(events, fmt.Sprint("drop ", n)); reserved -= n }
	for i := 0; len(raw) > 0 && err == nil; i++ {
		n := len(raw)
		if len(sizes) > 0 {
			n = min(n, max(1, sizes[i%len(sizes)]))
		}
		err = f.feed(raw[:n])
		raw = raw[n:]
	}
	for _, m := range f.partial {
		reserved -= m.reserved
	}
	return events, reserved, len(f.partial), err
}

var preface = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	out := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(out, stream), payload...)
}

// grpcMessage returns a message of n bytes in gRPC framing.
func grpcMessage(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
}

func TestFrames(t *testing.T) {
	m := grpcMessage(10)
	padded := func(p []byte) []byte { return append(append([]byte{3}, p...), 0, 0, 0) }
	for _, c := range []struct {
		name   string
		frames [][]byte
		want   string
		left   int
	}{
		{"one", [][]byte{frame(frameData, 0, 1, m)}, "begin 10, full 10", 0},
		{"others between", [][]byte{frame(4, 0, 0, make([]byte, 6)), frame(frameHeaders, 4, 1, []byte("x")), frame(frameData,
			0, 1, m[:7]), frame(8, 0, 1, make([]byte, 4)), frame(frameData, 0, 1, m[7:])}, "begin 10, full 10", 0},
		{"two in one", [][]byte{frame(frameData, 0, 1, slices.Concat(m, m[:3])), frame(frameData, 0, 1, m[3:])},
			"begin 10, full 10, begin 10, full 10", 0},
		{"two streams", [][]byte{frame(frameData, 0, 1, m[:6]), frame(frameData, 0, 3, m[:9]), frame(frameData, 0, 1, m[6:])},
			"begin 10, begin 10, full 10", 1},
		{"padding", [][]byte{frame(frameData, flagPadded, 1, padded(m[:8])), frame(frameData, flagPadded, 1, padded(m[8:]))},
			"begin 10, full 10", 0},
		{"reset", [][]byte{frame(frameData, 0, 1, m[:6]), frame(frameReset, 0, 1, make([]byte, 4))}, "begin 10, drop 10", 0},
		{"end", [][]byte{frame(frameData, flagEndStream, 1, m[:6])}, "begin 10, drop 10", 0},
		{"end later", [][]byte{frame(frameData, 0, 1, m[:6]), frame(frameData, flagEndStream, 1, nil)},
			"begin 10, drop 10", 0},
		{"trailers", [][]byte{frame(frameData, 0, 1, m[:6]), frame(frameHeaders, flagEndStream, 1, nil)},
			"begin 10, drop 10", 0},
		{"prefix only", [][]byte{frame(frameData, 0, 1, m[:4])}, "", 1},
		{"empty", [][]byte{frame(frameData, 0, 1, grpcMessage(0))}, "begin 0, full 0", 0},
		{"reserved bit", [][]byte{frame(frameData, 0, 1<<31|1, m[:6]), frame(frameData, 0, 1, m[6:])},
			"begin 10, full 10", 0},
	} {
		raw := slices.Concat(append([][]byte{preface}, c.frames...)...)
		events, _, left, err := followed(raw, nil)
		if got := strings.Join(events, ", "); got != c.want || left != c.left || err != nil {
			t.Errorf("%s: %s, %d under way, %v; want %s, %d under way", c.name, got, left, err, c.want, c.left)
		}
	}
	if _, _, _, err := followed(slices.Concat(preface, frame(frameData, flagPadded, 1, []byte{9, 0})), nil); err == nil {
		t.Error("too much padding is taken")
	}
	many := slices.Clone(preface)
	for i := range 9 {
		many = append(many, frame(frameData, 0, uint32(2*i+1), m[:6])...)
	}
	if _, reserved, left, err := followed(many, nil); err == nil || left != 8 || reserved != 0 {
		t.Errorf("of nine messages under way %d are remembered, %d bytes are lost: %v", left, reserved, err)
	}
	if _, _, _, err := followed(slices.Concat(preface, frame(frameData, 0, 1, grpcMessage(666))), nil); err == nil {
		t.Error("a refusal is not passed on")
	}
}

// TestFramesInPieces: the result does not depend on how the bytes are split.
func TestFramesInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := slices.Clone(preface)
		under := map[uint32][]byte{}
		for range rapid.IntRange(0, 30).Draw(t, "frames") {
			stream := rapid.Uint32Range(1, 4).Draw(t, "stream")
			flags := rapid.SampledFrom([]byte{0, 0, 0, flagEndStream, flagPadded}).Draw(t, "flags")
			switch kind := rapid.SampledFrom([]byte{frameData, frameData, frameData, frameHeaders, frameReset, 8}).Draw(t,
				"kind"); kind {
			case frameData:
				if len(under[stream]) == 0 {
					under[stream] = grpcMessage(rapid.IntRange(0, 50).Draw(t, "size"))
				}
				n := rapid.IntRange(0, len(under[stream])).Draw(t, "part")
				payload := under[stream][:n]
				under[stream] = under[stream][n:]
				if flags&flagPadded != 0 {
					payload = append(append([]byte{2}, payload...), 0, 0)
				}
				raw = append(raw, frame(kind, flags, stream, payload)...)
			default:
				raw = append(raw, frame(kind, flags&^flagPadded, stream, make([]byte, rapid.IntRange(0, 9).Draw(t, "bytes")))...)
			}
			if last := raw; len(last) > 0 && flags == flagEndStream {
				delete(under, stream)
			}
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 20), 1, 5).Draw(t, "pieces")
		a, r1, p1, err1 := followed(raw, nil)
		b, r2, p2, err2 := followed(raw, sizes)
		if !slices.Equal(a, b) || p1 != p2 || (err1 == nil) != (err2 == nil) || r1 != 0 || r2 != 0 {
			t.Fatalf("at once %v %d %d %v, in pieces %v %d %d %v", a, r1, p1, err1, b, r2, p2, err2)
		}
	})
}

func FuzzFrames(f *testing.F) {
	m := grpcMessage(10)
	f.Add(slices.Concat(preface, frame(frameData, 0, 1, m[:7]),
		frame(frameData, flagPadded, 1, append([]byte{1}, m[7:]...)), frame(frameReset, 0, 1, make([]byte, 4))), 3)
	f.Add(slices.Concat(preface, frame(frameHeaders, flagEndStream, 1, nil), frame(frameData, 0, 3, m)), 1)
	f.Fuzz(func(t *testing.T, raw []byte, size int) {
		a, r1, p1, err1 := followed(raw, nil)
		b, r2, p2, err2 := followed(raw, []int{size % 100})
		if !slices.Equal(a, b) || p1 != p2 || (err1 == nil) != (err2 == nil) || r1 != 0 || r2 != 0 || p1 > 8 {
			t.Fatalf("at once %v %d %d %v, in pieces %v %d %d %v", a, r1, p1, err1, b, r2, p2, err2)
		}
	})
}
