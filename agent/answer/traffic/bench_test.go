package traffic_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// BenchmarkUsage counts lines of the default format for a proxy with many services.
func BenchmarkUsage(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n, " services"), func(b *testing.B) {
			var more strings.Builder
			for i := range n {
				fmt.Fprintf(&more, "---\n{type: Dataplane, mesh: default, name: s%d-1, networking: {address: 10.0.%d.%d, "+
					"inbound: [{port: 80, tags: {kuma.io/service: s%d, kuma.io/protocol: http}}]}}\n", i, i/250, i%250+1, i)
			}
			x := world{mode: "Everywhere", from: file, more: more.String()}.traffic(b, time.Time{})
			logs, err := x.Readable()
			if err != nil {
				b.Fatal(err)
			}
			lines := make([][]byte, n)
			for i := range lines {
				lines[i] = []byte(http(1, fmt.Sprintf("s%d", i), "10.0.0.1:80"))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				x.Line(lines[i%n], logs)
			}
			if x.Lines.Used != b.N {
				b.Errorf("%+v", x.Lines)
			}
		})
	}
}
