package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/inject"
	"github.com/nearside-mesh/nearside/agent/host/certfiles"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/serve/web"
	"github.com/nearside-mesh/nearside/agent/serve/webhook"
	"golang.org/x/sync/errgroup"
)

// openPage creates the server of ui.listen, after the API. While its certificate cannot be used,
// the agent starts without the page, and the status says why.
func (a *Agent) openPage(cfg *config.Config) error {
	if cfg.UI.Listen == "" {
		return nil
	}
	o := web.Options{Backend: a.api.Load().Handler(), Mode: web.ModeAgent, Login: web.LoginToken, Write: true,
		Version: a.deps.Version, Now: a.deps.Now, Log: a.log}
	var err error
	a.pageCerts, err = certfiles.Open(certfiles.Options{Cert: cfg.UI.TLS.Cert, Key: cfg.UI.TLS.Key, Keys: "ui.tls",
		Protocols: []string{"h2", "http/1.1"}, Log: a.log})
	if err != nil {
		a.log.Error("the web page cannot be served until its certificate is valid", "key", "ui.listen", "error", err)
	}
	o.TLS = a.pageCerts.Server()
	o.Named = func(host string) bool { return slices.Contains(cfg.UI.Hosts, host) || a.pageCerts.Names(host) }
	if a.page, err = web.New(o); err != nil {
		return fmt.Errorf("ui.listen: %w", err)
	}
	return nil
}

// lingerTime is how long an agent that another one replaces serves the webhook after everything
// else: requests arrive until all nodes know that its pod ends.
const lingerTime = 3 * time.Second

// startWebhook serves webhook.listen until stop is called, also while another agent runs, because a
// Service sends requests to each ready pod. It returns a context that ends with a fault of the
// server. While the certificate cannot be used, all connections fail, and the status says why.
func (a *Agent) startWebhook(ctx context.Context,
	cfg *config.Config) (_ context.Context, stop func() error, err error) {
	w, in := &cfg.Webhook, &cfg.Inject
	if w.Listen == "" {
		return ctx, func() error { return nil }, nil
	}
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
		return ctx, nil, fmt.Errorf("webhook.listen: %w", err)
	}
	l, err := a.listenOrAwait(ctx, "webhook.listen", hold.APIPrefix, w.Listen)
	if err != nil {
		return ctx, nil, err
	}
	a.addrs.Webhook = l.Addr()
	serve, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g, failed := errgroup.WithContext(serve)
	g.Go(func() error { return a.webhook.Serve(serve, l) })
	ctx, end := context.WithCancel(ctx)
	context.AfterFunc(failed, end)
	return ctx, func() error {
		if a.deps.Await {
			select {
			case <-time.After(lingerTime):
			case <-failed.Done():
			}
		}
		cancel()
		return g.Wait()
	}, nil
}
