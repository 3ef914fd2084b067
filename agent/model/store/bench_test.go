package store_test

import (
	"fmt"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/store"
)

const benchSize = 3000

// batch returns benchSize puts with different texts in each round.
func batch(round int) store.Batch {
	b := store.Batch{Source: fileA}
	for i := range benchSize {
		b.Ops = append(b.Ops, store.Op{Put: res(fmt.Sprintf("n%05d", i), fmt.Sprint(round))})
	}
	return b
}

func BenchmarkApplyAll(b *testing.B) {
	for name, path := range map[string]string{"memory": "", "disk": tempPath(b)} {
		b.Run(name, func(b *testing.B) {
			s := open(b, path)
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				all := batch(n)
				b.StartTimer()
				if _, err := s.Apply(all); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkApplyOne(b *testing.B) {
	for name, path := range map[string]string{"memory": "", "disk": tempPath(b)} {
		b.Run(name, func(b *testing.B) {
			s := open(b, path)
			if _, err := s.Apply(batch(0)); err != nil {
				b.Fatal(err)
			}
			for n := 1; b.Loop(); n++ {
				mustPut(b, s, fileA, "n01000", fmt.Sprint(n))
			}
		})
	}
}

func BenchmarkApplyUnchanged(b *testing.B) {
	s := open(b, tempPath(b))
	all := batch(0)
	for b.Loop() {
		if _, err := s.Apply(all); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	s := openWith(b, store.Options{})
	if _, err := s.Apply(batch(0)); err != nil {
		b.Fatal(err)
	}
	for n := 1; b.Loop(); n++ {
		b.StopTimer()
		mustPut(b, s, fileA, "n01000", fmt.Sprint(n))
		b.StartTimer()
		_ = s.Snapshot().Set()
	}
}

func BenchmarkOpen(b *testing.B) {
	path := tempPath(b)
	s := open(b, path)
	for n := range 20 {
		if _, err := s.Apply(batch(n)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		s = reopen(b, s, path)
	}
}
