package table

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"unsafe"
)

// bytesUsed returns the memory of an index.
func (x *index) bytesUsed() int {
	return cap(x.bytes) + cap(x.slots)*8 + cap(x.names)*int(unsafe.Sizeof(entry{})) + cap(x.sets)*int(unsafe.Sizeof(set{}))
}

// BenchmarkTable measures a rebuild of 10,000 names, and a change of one of them.
func BenchmarkTable(b *testing.B) {
	hosts := benchHosts(10000)
	b.Run("10000", func(b *testing.B) {
		b.ReportAllocs()
		var t *Table
		for b.Loop() {
			t = mustTable(b, benchOptions, hosts...)
		}
		b.ReportMetric(float64(t.base.bytesUsed())/float64(len(hosts)), "B/name")
	})
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		t := mustTable(b, benchOptions, hosts...)
		i := 0
		for b.Loop() {
			t, _ = t.With(hosts[i%400:i%400+1], nil)
			i++
		}
	})
}

// benchHosts returns n hosts with names as in a mesh and one address each.
func benchHosts(n int) (hosts []Host) {
	for i := range n {
		hosts = append(hosts, Host{Name: fmt.Sprintf("svc-%05d.ns-%02d.svc.mesh.local", i, i%50),
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{240, 0, byte(i >> 8), byte(i)})}})
	}
	return hosts
}

var benchOptions = Options{Suffixes: []string{"mesh.local"}}

// A table of 100,000 names needs no more than 150 bytes for each of them.
func TestMemoryPerName(t *testing.T) {
	const n = 100000
	hosts := benchHosts(n)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	heap() // finalizers run
	before := heap()
	answers := NewAnswers(mustTable(t, benchOptions, hosts...), nil)
	after := heap()
	runtime.KeepAlive(answers)
	runtime.KeepAlive(hosts)
	if per := (float64(after) - float64(before)) / n; per > 150 {
		t.Errorf("%.1f bytes per name", per)
	} else {
		t.Logf("%.1f bytes per name", per)
	}
}
