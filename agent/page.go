package agent

import (
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/host/certfiles"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/serve/web"
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
