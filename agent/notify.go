package agent

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// statusLine returns the state of the agent in one line for "systemctl status". It names no
// resource, because users who may query systemd may not read all resources.
func (a *Agent) statusLine() string {
	connected, late, rejecting := 0, 0, 0
	for _, p := range a.rollout.Progress() {
		if p.State == api.StateDisconnected {
			continue
		}
		connected++
		if len(p.Unanswered) > 0 {
			late++
		}
		if len(p.Rejected) > 0 {
			rejecting++
		}
	}
	said := plural.Form(connected, "1 proxy is connected", "%d proxies are connected")
	if connected == 0 {
		said = "no proxy is connected"
	}
	if late > 0 {
		said += fmt.Sprintf(", %d with pending config", late)
	}
	if rejecting > 0 {
		said += fmt.Sprintf(", %d with rejected config", rejecting)
	}
	var bad []string
	for _, c := range a.readiness() {
		if !c.OK || c.Degraded {
			bad = append(bad, c.Name)
		}
	}
	if len(bad) > 0 {
		return "STATUS=" + said + "; degraded: " + strings.Join(bad, ", ") + " (see nearside check)"
	}
	return "STATUS=" + said + "; all is well"
}
