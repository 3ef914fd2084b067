package offline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
)

// manyDataplanes returns n Dataplanes, ten per service, in the usual YAML layout.
func manyDataplanes(n int) string {
	var b strings.Builder
	b.WriteString("type: Mesh\nname: default\n")
	for i := range n {
		fmt.Fprintf(&b, "---\ntype: Dataplane\nmesh: default\nname: dp-%05d\nnetworking:\n  address: 10.%d.%d.%d\n"+
			"  inbound:\n  - port: 8080\n    tags:\n      kuma.io/service: svc-%d\n      kuma.io/protocol: http\n",
			i, i/62500, i/250%250, i%250+1, i/10)
	}
	return b.String()
}

// square returns n services whose proxies reach each other.
func square(n int) string {
	var b strings.Builder
	b.WriteString("type: Mesh\nname: default\n")
	for i := range n {
		fmt.Fprintf(&b, "---\ntype: Dataplane\nmesh: default\nname: svc-%05d\nnetworking:\n  address: 10.1.%d.%d\n"+
			"  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}\n  inbound:\n  - port: 8080\n"+
			"    tags:\n      kuma.io/service: svc-%d\n      kuma.io/protocol: http\n", i, i/250, i%250+1, i)
	}
	return b.String()
}

func validate(b *testing.B, text string) {
	b.ReportAllocs()
	for b.Loop() {
		o, faults := offline.Read([]offline.Text{{Name: "many.yaml", Data: []byte(text)}})
		if err := faults.Err(); err != nil {
			b.Fatal(err)
		}
		v, err := o.Verify(context.Background(), offline.VerifyOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if len(v.Faults)+len(v.Warnings) > 0 {
			b.Fatal(v.Faults, v.Warnings)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s")
}

// BenchmarkValidate measures nearside validate.
func BenchmarkValidate(b *testing.B) {
	for _, n := range []int{5000, 10_000, 20_000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { validate(b, manyDataplanes(n)) })
	}
	b.Run("1000x1000", func(b *testing.B) { validate(b, square(1000)) })
}

// BenchmarkDiff measures nearside diff -f --against with patches, where all proxies are new.
func BenchmarkDiff(b *testing.B) {
	for _, n := range []int{5000, 10_000, 20_000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			now, _ := offline.Read([]offline.Text{{Data: []byte("type: Mesh\nname: default\n")}})
			put, _ := offline.Read([]offline.Text{{Data: []byte(manyDataplanes(n))}})
			b.ReportAllocs()
			for b.Loop() {
				d, err := now.Diff(context.Background(), "", offline.DiffOptions{Put: put})
				if err != nil || len(d.Proxies) != n {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRead measures decoding.
func BenchmarkRead(b *testing.B) {
	text := manyDataplanes(10_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, faults := offline.Read([]offline.Text{{Data: []byte(text)}}); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}
