package logs_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestPrepareForAnotherHost checks that an Envoy on another host may write only the files whose
// backend does not require rotation.
func TestPrepareForAnotherHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.lock(func() { w.peers["default.web"] = access.Peer{Addr: "192.0.2.1:77"} })
		defer w.run()()
		own, plain := file("own", "/var/log/nearside/own"), file("plain", "/var/log/nearside/plain")
		plain.Fallback = true
		got, _ := w.Prepare(key("web"), []draft.Pipe{own, plain})
		if got[own.Path].EnvoyWrites || !strings.Contains(got[own.Path].Reason, "another host") ||
			!got[plain.Path].EnvoyWrites {
			t.Errorf("%+v", got)
		}
	})
}
