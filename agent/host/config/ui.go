package config

import (
	"net/netip"
	"strings"
)

// Metrics configures metrics over the network.
type Metrics struct {
	Listen    string `json:"listen" check:"address" doc:"TCP address that serves only GET /metrics, over plain HTTP, to clients with the token of metrics.tokenFile. Empty: off; the API also serves metrics."`
	TokenFile string `json:"tokenFile" path:"state" doc:"File with the bearer token for metrics.listen, below paths.state when relative."`
}

// UI configures the web page.
type UI struct {
	Listen string   `json:"listen" check:"address" doc:"TCP address that serves the web page to users with a token for the API (nearside token create --api), each with the permissions of the token. An address that is not loopback needs ui.tls. Empty: off; nearside ui serves the page to one user."`
	Hosts  []string `json:"hosts" check:"name" max:"16" unique:"" doc:"Names of the page in URLs, in addition to the IP address of ui.listen and the names of its certificate: those of a proxy in front of it, which must use https."`
	TLS    struct {
		Cert string `json:"cert" path:"state" doc:"File with the certificate chain for TLS on ui.listen, PEM, below paths.state when relative. New connections use a replaced file within a second. Empty: no TLS."`
		Key  string `json:"key" path:"state" doc:"File with the private key of ui.tls.cert, PEM, below paths.state when relative."`
	} `json:"tls"`
}

// checkUI checks the protection of ui.listen.
func (c *Config) checkUI(fault faultFunc) {
	tls := &c.UI.TLS
	if tls.Key != "" && tls.Cert == "" {
		fault("ui.tls.key", "%q has no certificate; set ui.tls.cert too", tls.Key)
	}
	if tls.Cert != "" && tls.Key == "" {
		fault("ui.tls.cert", "%q has no private key; set ui.tls.key too", tls.Cert)
	}
	at := c.UI.Listen
	if at == "" {
		return
	}
	if !strings.HasSuffix(at, ":0") && (at == c.API.TCP || at == c.XDS.TCP || at == c.Metrics.Listen) {
		fault("ui.listen", "%q is also api.tcp, xds.tcp, or metrics.listen; use different addresses", at)
	}
	if tls.Cert == "" && !isLoopback(at) {
		fault("ui.listen", "%q is not a loopback address, and tokens would cross the network unencrypted; set ui.tls.cert "+
			"and ui.tls.key, or use 127.0.0.1 or [::1]", at)
	}
	for _, h := range c.UI.Hosts {
		if _, err := netip.ParseAddr(h); err == nil {
			fault("ui.hosts", "%q is an IP address; the page accepts that of ui.listen, and those of its certificate", h)
		}
	}
}
