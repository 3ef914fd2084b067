package agent

import (
	"fmt"
	"os/exec"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/answer/envoybin"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Limits for validating one write with an Envoy.
const (
	mostTries = 8
	tryTime   = 3 * time.Second
)

// newTry returns a function that creates a validator for one write with the configured Envoy, or
// nil without one.
func (a *Agent) newTry() func() change.Try {
	if a.deps.EnvoyBin == "" {
		return nil
	}
	path, err := exec.LookPath(a.deps.EnvoyBin)
	if err != nil {
		a.log.Error("the Envoy of "+envoybin.EnvoyVariable+" cannot be started; configs are checked without it",
			"path", a.deps.EnvoyBin, "error", err)
		a.notes = append(a.notes, api.Check{Name: "envoy", OK: true, Degraded: true,
			Reason: fmt.Sprintf("the Envoy of %s cannot be started, so configs are checked without it: %v",
				envoybin.EnvoyVariable, err)})
		return nil
	}
	return func() change.Try { return (&envoybin.Binary{Path: path, Timeout: tryTime, Most: mostTries}).Try }
}
