package healthcheck

import (
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Conf says how the endpoints of a service are probed.
type Conf struct {
	Interval           *resource.Duration `json:"interval,omitempty"`           // between two probes. Default 1m
	Timeout            *resource.Duration `json:"timeout,omitempty"`            // of a probe. Default 15s
	UnhealthyThreshold *uint32            `json:"unhealthyThreshold,omitempty"` // failures until an endpoint is left out. Default 5
	HealthyThreshold   *uint32            `json:"healthyThreshold,omitempty"`   // successes until it is back. Default 1
	// InitialJitter delays the first probe by up to that much; the others are added to every interval.
	InitialJitter         *resource.Duration `json:"initialJitter,omitempty"`
	IntervalJitter        *resource.Duration `json:"intervalJitter,omitempty"`
	IntervalJitterPercent *uint32            `json:"intervalJitterPercent,omitempty"`
	// HealthyPanicThreshold is the percentage of healthy endpoints below which all are used. Default 50.
	HealthyPanicThreshold *resource.Decimal `json:"healthyPanicThreshold,omitempty"`
	// FailTrafficOnPanic sends nothing, rather than to all, below that percentage.
	FailTrafficOnPanic *bool `json:"failTrafficOnPanic,omitempty"`
	// EventLogPath is a file to which the proxy writes what becomes of endpoints.
	EventLogPath                 string             `json:"eventLogPath,omitempty"`
	AlwaysLogHealthCheckFailures *bool              `json:"alwaysLogHealthCheckFailures,omitempty"`
	NoTrafficInterval            *resource.Duration `json:"noTrafficInterval,omitempty"` // while the cluster is not used. Default 1m
	TCP                          *TCP               `json:"tcp,omitempty"`
	HTTP                         *HTTP              `json:"http,omitempty"`
	GRPC                         *GRPC              `json:"grpc,omitempty"`
	ReuseConnection              *bool              `json:"reuseConnection,omitempty"` // for the next probe. Default true
}

// TCP probes with bytes, in base64 in the document. Without Send a connection is enough.
type TCP struct {
	Disabled *bool    `json:"disabled,omitempty"`
	Send     []byte   `json:"send,omitempty"`
	Receive  [][]byte `json:"receive,omitempty"` // in this order, with anything between
}

// HTTP probes with a GET request.
type HTTP struct {
	Disabled            *bool                 `json:"disabled,omitempty"`
	Path                *string               `json:"path,omitempty"` // default /
	RequestHeadersToAdd *toolkit.HeaderValues `json:"requestHeadersToAdd,omitempty"`
	ExpectedStatuses    []uint32              `json:"expectedStatuses,omitempty"` // default 200
}

// GRPC probes with grpc.health.v1.Health/Check.
type GRPC struct {
	Disabled    *bool  `json:"disabled,omitempty"`
	ServiceName string `json:"serviceName,omitempty"` // asked about. Default the whole server
	Authority   string `json:"authority,omitempty"`   // default the name of the cluster
}
