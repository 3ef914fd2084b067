package agent

import (
	"fmt"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/host/certfiles"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/serve/webhook"
)

// openWebhook creates the server of webhook.listen. While its certificate cannot be used, the agent
// starts without it, and the status says why.
func (a *Agent) openWebhook(cfg *config.Config) error {
	w, in := &cfg.Webhook, &cfg.Inject
	if w.Listen == "" {
		return nil
	}
	var err error
	a.webhookCerts, err = certfiles.Open(certfiles.Options{Cert: w.TLS.Cert, Key: w.TLS.Key, ClientCA: w.TLS.ClientCA,
		Keys: "webhook.tls", Protocols: []string{"h2", "http/1.1"}, Log: a.log})
	if err != nil {
		a.log.Error("the webhook cannot be served until its certificate is valid", "key", "webhook.listen", "error", err)
	}
	a.webhook, err = webhook.New(webhook.Options{TLS: a.webhookCerts.Server(), Log: a.log, Inject: inject.Options{
		Mesh: in.Mesh, EnvoyImage: in.EnvoyImage, Identity: inject.Identity(in.Identity),
		DrainTime: time.Duration(in.DrainTime) * time.Second, AppDrainTime: time.Duration(in.AppDrainTime) * time.Second}})
	if err == nil {
		err = a.deps.Metrics.Register(a.webhook)
	}
	if err != nil {
		return fmt.Errorf("webhook.listen: %w", err)
	}
	return nil
}
