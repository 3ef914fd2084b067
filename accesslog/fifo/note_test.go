package fifo

import (
	"bytes"
	"testing"

	"github.com/nearside-mesh/nearside/rotation"
)

// FuzzNote checks that decodeNote accepts only encoded notes of the same FIFO.
func FuzzNote(f *testing.F) {
	fifo := [2]uint64{7, 8}
	b := encodeNote(fifo, rotation.Place{Dev: 1, Ino: 2, Offset: 3, Length: 4, Before: 5}, rotation.Place{Length: 6})
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		places := decodeNote(fifo, b)
		if places == nil {
			return
		}
		if again := encodeNote(fifo, places...); !bytes.Equal(again[:], b) {
			t.Errorf("%+v", places)
		}
		if decodeNote([2]uint64{7, 9}, b) != nil {
			t.Error("the note of another FIFO is accepted")
		}
	})
}
