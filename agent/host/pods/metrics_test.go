package pods_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/host/pods"
)

// TestMetrics checks the number of served pods and of refused registrations by their reason.
func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	n := newNode(t, func(o *pods.Options) { o.Registry = r })
	n.add(web("good"))
	n.write("other.json", text(web("not-other")))
	n.write("without.json", text(web("without")))
	must(t, os.Mkdir(filepath.Join(n.add(web("blocked")), "xds.sock"), 0o700))
	n.Scan()
	families, err := r.Gather()
	must(t, err)
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got = append(got, fmt.Sprintf("%s %v", name, m.GetGauge().GetValue()))
		}
	}
	want := "nearside_pods_refused directory 1; nearside_pods_refused limit 0; nearside_pods_refused registration 1; " +
		"nearside_pods_refused socket 1; nearside_pods_served 2"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("%s\nwant %s\n%+v", s, want, n.State())
	}
}
