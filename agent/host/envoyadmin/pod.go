package envoyadmin

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// maxCommandLine limits the arguments that are read. The bootstrap of a pod is one of them.
const maxCommandLine = 1 << 20

// commandLine returns the drain settings in the arguments of a process.
func commandLine(pid int32) (api.DrainSettings, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(int(pid)) + "/cmdline")
	if err != nil {
		return api.DrainSettings{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCommandLine))
	if err != nil {
		return api.DrainSettings{}, err
	}
	return DrainFlags(strings.Split(string(b), "\x00"))
}

// DrainFlags returns the drain settings that the arguments of an Envoy set, or Envoy's defaults.
func DrainFlags(args []string) (api.DrainSettings, error) {
	out := api.DefaultDrain
	for i, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok && i+1 < len(args) {
			value = args[i+1]
		}
		var to *time.Duration
		switch name {
		case "--drain-time-s":
			to = &out.Time
		case "--parent-shutdown-time-s":
			to = &out.ParentShutdown
		case "--drain-strategy":
			if value != api.Gradual && value != api.Immediate {
				return api.DrainSettings{}, fmt.Errorf("the Envoy has no valid %s: %.64q", name, value)
			}
			out.Strategy = value
			continue
		default:
			continue
		}
		seconds, err := strconv.ParseUint(value, 10, 64)
		if err != nil || seconds > uint64(maxDrainTime/time.Second) {
			return api.DrainSettings{}, fmt.Errorf("the Envoy has no valid %s: %.64q", name, value)
		}
		*to = time.Duration(seconds) * time.Second
	}
	return out, nil
}
