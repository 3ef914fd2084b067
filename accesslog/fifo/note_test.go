package fifo

import (
	"bytes"
	"testing"

	"github.com/nearside-mesh/nearside/rotation"
)

// FuzzNote checks that decodeNote accepts only encoded notes of the same FIFO.
func FuzzNote(f *testing.F) {
	fifo := [2]uint64{7, 8}
	b := encodeNote(fifo, rotation.Extent{Dev: 1, Ino: 2, Offset: 3, Length: 4, Before: 5}, rotation.Extent{Length: 6})
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		extents := decodeNote(fifo, b)
		if extents == nil {
			return
		}
		if encoded := encodeNote(fifo, extents...); !bytes.Equal(encoded[:], b) {
			t.Errorf("%+v", extents)
		}
		if decodeNote([2]uint64{7, 9}, b) != nil {
			t.Error("the note of another FIFO is accepted")
		}
	})
}
