package resource

// Dataplane is one workload's proxy: what it listens for and what it wants to reach.
type Dataplane struct {
	Networking Networking `json:"networking"`

	// Notes are about annotations that it came with and that are not in force. They are no part of the document.
	Notes []string `json:"-"`
}

// Networking is the proxy's place in the network.
type Networking struct {
	Address             string               `json:"address"`                     // IP or host name others reach the proxy at
	AdvertisedAddress   string               `json:"advertisedAddress,omitempty"` // replaces Address for other proxies
	Gateway             *Gateway             `json:"gateway,omitempty"`
	Inbound             []Inbound            `json:"inbound,omitempty"`
	Outbound            []Outbound           `json:"outbound,omitempty"`
	TransparentProxying *TransparentProxying `json:"transparentProxying,omitempty"`
	Admin               *Admin               `json:"admin,omitempty"`
}

// Gateway marks a proxy without inbounds of its own. Only delegated gateways are served.
type Gateway struct {
	Tags map[string]string `json:"tags,omitempty"`
	Type string            `json:"type,omitempty"` // "", DELEGATED or BUILTIN
}

// Inbound is one port the workload serves.
type Inbound struct {
	Port           uint32            `json:"port"`
	Name           string            `json:"name,omitempty"`
	ServicePort    uint32            `json:"servicePort,omitempty"`    // 0: Port
	ServiceAddress string            `json:"serviceAddress,omitempty"` // "": the inbound's address
	Address        string            `json:"address,omitempty"`        // "": Networking.Address
	Tags           map[string]string `json:"tags,omitempty"`
	State          string            `json:"state,omitempty"` // "", Ready, NotReady or Ignored
	Health         *InboundHealth    `json:"health,omitempty"`
	ServiceProbe   *ServiceProbe     `json:"serviceProbe,omitempty"`
}

// Inbound states.
const (
	InboundReady    = "Ready"
	InboundNotReady = "NotReady"
	InboundIgnored  = "Ignored"
)

// InboundHealth is the older way to say that an inbound is not ready.
type InboundHealth struct {
	Ready bool `json:"ready"`
}

// ServiceProbe asks the proxy to probe the workload. It is accepted and kept; nearside does not act on it.
type ServiceProbe struct {
	Interval           *Duration `json:"interval,omitempty"`
	Timeout            *Duration `json:"timeout,omitempty"`
	UnhealthyThreshold *uint32   `json:"unhealthyThreshold,omitempty"`
	HealthyThreshold   *uint32   `json:"healthyThreshold,omitempty"`
	TCP                *Raw      `json:"tcp,omitempty"`
}

// Outbound is one destination the workload dials by a port or address of its own.
type Outbound struct {
	Address    string            `json:"address,omitempty"` // "": 127.0.0.1
	Port       uint32            `json:"port"`
	Tags       map[string]string `json:"tags,omitempty"`
	BackendRef *OutboundRef      `json:"backendRef,omitempty"` // instead of Tags
}

// OutboundRef names a service resource.
type OutboundRef struct {
	Kind      string            `json:"kind"`
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Port      uint32            `json:"port,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// IP family modes of a transparent proxy.
const (
	IPFamilyDualStack = "DualStack"
	IPFamilyIPv4      = "IPv4"
	IPFamilyIPv6      = "IPv6"
)

// TransparentProxying says that the workload's traffic is redirected to the proxy.
type TransparentProxying struct {
	RedirectPortInbound   uint32             `json:"redirectPortInbound,omitempty"`
	RedirectPortInboundV6 uint32             `json:"redirectPortInboundV6,omitempty"` // superseded by IPFamilyMode
	RedirectPortOutbound  uint32             `json:"redirectPortOutbound,omitempty"`
	IPFamilyMode          string             `json:"ipFamilyMode,omitempty"`         // "" or UnSpecified: DualStack
	DirectAccessServices  []string           `json:"directAccessServices,omitempty"` // "*" for all
	ReachableServices     []string           `json:"reachableServices,omitempty"`    // empty: all
	ReachableBackends     *ReachableBackends `json:"reachableBackends,omitempty"`    // nil: all; no refs: none
}

// ReachableBackends lists the service resources that the proxy gets config for.
type ReachableBackends struct {
	Refs []ReachableBackendRef `json:"refs,omitempty"`
}

// ReachableBackendRef names services by name (with namespace and port) or by labels alone.
type ReachableBackendRef struct {
	Kind      string            `json:"kind"`
	Name      string            `json:"name,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Port      *uint32           `json:"port,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Admin is the proxy's admin endpoint as the reference format has it.
type Admin struct {
	Port uint32 `json:"port,omitempty"`
}
