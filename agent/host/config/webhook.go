package config

import "strings"

// Webhook configures the injection of sidecars for the API server of a cluster.
type Webhook struct {
	Listen string `json:"listen" check:"address" doc:"TCP address of the mutating webhook of Kubernetes, which injects sidecars into pods at POST /inject (/inject/MESH: for pods that name no mesh). It needs webhook.tls. Empty: off."`
	TLS    struct {
		Cert     string `json:"cert" path:"state" doc:"File with the certificate chain for webhook.listen, PEM, below paths.state when relative. New connections use a replaced file within a second."`
		Key      string `json:"key" path:"state" doc:"File with the private key of webhook.tls.cert, PEM, below paths.state when relative."`
		ClientCA string `json:"clientCA" path:"state" doc:"File with the authorities of the API server's client certificate, PEM, below paths.state when relative. Empty: clients need no certificate. The answers contain no secrets."`
	} `json:"tls"`
}

// Inject configures what the webhook injects.
type Inject struct {
	Mesh         string `json:"mesh" default:"default" check:"name" required:"" max:"63" doc:"Mesh of pods that name none."`
	EnvoyImage   string `json:"envoyImage" default:"docker.io/envoyproxy/envoy:v1.36.2" required:"" max:"512" doc:"Image of the sidecar."`
	Identity     string `json:"identity" default:"csi" oneOf:"csi,hostpath" doc:"Volume of the sidecar: of the CSI driver, which tells the agent the pod, or the hostPath /run/nearside, for which xds.access identifies pods."`
	DrainTime    int    `json:"drainTime" default:"5" max:"3600" doc:"Seconds that a sidecar waits before it ends with its pod, unless the pod sets kuma.io/sidecar-drain-time."`
	AppDrainTime int    `json:"appDrainTime" default:"3" max:"3600" doc:"Seconds that application containers wait before they get SIGTERM, unless the pod sets nearside.io/app-drain-time."`
}

// checkWebhook checks the protection of webhook.listen, and what is injected.
func (c *Config) checkWebhook(fault faultFunc) {
	const seconds = "%d is invalid; use 1 to 3600 seconds, or the annotation of a pod for 0s"
	if n := c.Inject.DrainTime; n < 1 {
		fault("inject.drainTime", seconds, n)
	}
	if n := c.Inject.AppDrainTime; n < 1 {
		fault("inject.appDrainTime", seconds, n)
	}
	w := &c.Webhook
	if w.Listen == "" {
		return
	}
	if w.TLS.Cert == "" || w.TLS.Key == "" {
		fault("webhook.listen", "%q needs TLS, because the API server connects only with https; set webhook.tls.cert and "+
			"webhook.tls.key", w.Listen)
	}
	for _, at := range []string{c.API.TCP, c.XDS.TCP, c.Metrics.Listen, c.UI.Listen} {
		if at == w.Listen && !strings.HasSuffix(at, ":0") {
			fault("webhook.listen", "%q is also api.tcp, xds.tcp, metrics.listen, or ui.listen; use different addresses", at)
		}
	}
}
