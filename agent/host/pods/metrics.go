package pods

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons of refused registrations in metrics.
const (
	reasonRegistration = "registration" // the file of the pod
	reasonDirectory    = "directory"    // the directory of the pod
	reasonSocket       = "socket"       // a socket cannot be opened
	reasonLimit        = "limit"        // too many pods
)

// refusal is why a pod is not served.
type refusal struct {
	reason string
	error
}

// Unwrap returns the error itself.
func (r *refusal) Unwrap() error { return r.error }

// refuse adds the reason to an error.
func refuse(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &refusal{reason, err}
}

// reasonOf returns the reason of an error.
func reasonOf(err error) string {
	var r *refusal
	if errors.As(err, &r) {
		return r.reason
	}
	return reasonDirectory
}

var (
	servedDesc  = prometheus.NewDesc("nearside_pods_served", "Pods with their own sockets.", nil, nil)
	refusedDesc = prometheus.NewDesc("nearside_pods_refused", "Registrations of pods that are refused.",
		[]string{"reason"}, nil)
)

// Describe implements [prometheus.Collector].
func (p *Pods) Describe(ch chan<- *prometheus.Desc) { ch <- servedDesc; ch <- refusedDesc }

// Collect implements [prometheus.Collector].
func (p *Pods) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(servedDesc, prometheus.GaugeValue, float64(len(p.pods)))
	n := map[string]int{}
	for _, err := range p.refused {
		n[reasonOf(err)]++
	}
	for _, reason := range []string{reasonRegistration, reasonDirectory, reasonSocket, reasonLimit} {
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.GaugeValue, float64(n[reason]), reason)
	}
}
