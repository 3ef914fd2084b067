package identity

import (
	"hash/fnv"
	"time"
)

const (
	// backdate lets proxies whose clocks are behind accept what is new.
	backdate = time.Minute
	// settle is how long an authority is trusted before it signs, so that every proxy knows it when it meets the first
	// certificate.
	settle = time.Minute
	// overlap is how long an authority stays trusted that its owner has put another one in place of.
	overlap = 10 * time.Minute

	proxyLife = 24 * time.Hour            // default of dpCert.rotation.expiration
	rootLife  = 10 * 365 * 24 * time.Hour // default of conf.caCert.expiration
	leastLife = time.Minute               // of a certificate; proxies would do nothing but take new ones
	mostLife  = 100 * 365 * 24 * time.Hour
)

// span bounds a configured life; 0 stands for a default.
func span(configured, otherwise time.Duration) time.Duration {
	if configured == 0 {
		configured = otherwise
	}
	return min(max(configured, leastLife), mostLife)
}

// rootRenewal is when an authority gets a successor: at four fifths of its life.
func rootRenewal(from, until time.Time) time.Time { return from.Add(until.Sub(from) / 5 * 4) }

// proxyRenewal is when the certificate of a proxy is replaced: between 72 and 80 percent of its life, at a place that
// depends on the name of the proxy alone, so that those of a node are not all replaced at once.
func proxyRenewal(from, until time.Time, proxy string) time.Time {
	h := fnv.New32a()
	h.Write([]byte(proxy))
	life := until.Sub(from)
	early := time.Duration(float64(life) * 0.08 * float64(h.Sum32()) / (1 << 32))
	return from.Add(life/5*4 - early)
}
