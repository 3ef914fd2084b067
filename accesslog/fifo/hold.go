package fifo

import "os"

// NoHolder is a [Holder] that holds nothing: while this process is away, nobody reads. It is for
// tests and for programs that live as long as their writers.
func NoHolder() Holder { return none }

var none Holder = noHolder{}

type noHolder struct{}

func (noHolder) Hold(string, *os.File) error { return nil }
func (noHolder) Release(string) error        { return nil }
func (noHolder) By(string) string            { return "" }
