package api

import "time"

// Head holds the common fields of documents that kumactl lists.
type Head struct {
	Type     string            `json:"type"`
	Mesh     string            `json:"mesh,omitempty"`
	Name     string            `json:"name"`
	Created  time.Time         `json:"creationTime"`
	Modified time.Time         `json:"modificationTime"`
	Labels   map[string]string `json:"labels,omitempty"`
}

// Insight describes a proxy by its connections. Kuma counts all responses; this counts the current
// types of resources.
type Insight struct {
	Subscriptions []Subscription `json:"subscriptions"`
	MTLS          *InsightMTLS   `json:"mTLS,omitempty"`
}

// InsightMTLS is the certificate of a proxy. The number counts the certificates issued since the
// agent started, including the first one.
type InsightMTLS struct {
	Until             time.Time `json:"certificateExpirationTime"`
	At                time.Time `json:"lastCertificateRegeneration"`
	Made              int       `json:"certificateRegenerations"`
	IssuedBackend     string    `json:"issuedBackend"`
	SupportedBackends []string  `json:"supportedBackends"`
}

// Subscription is one xDS connection of a proxy.
type Subscription struct {
	ID                     string              `json:"id"`
	ControlPlaneInstanceID string              `json:"controlPlaneInstanceId"`
	ConnectTime            time.Time           `json:"connectTime"`
	DisconnectTime         *time.Time          `json:"disconnectTime,omitempty"`
	Status                 SubscriptionStatus  `json:"status"`
	Version                SubscriptionVersion `json:"version"`
}

// SubscriptionStatus counts responses.
type SubscriptionStatus struct {
	LastUpdateTime *time.Time        `json:"lastUpdateTime,omitempty"`
	Total          map[string]string `json:"total"` // 64-bit numbers as text
}

// SubscriptionVersion has the versions of both sides.
type SubscriptionVersion struct {
	KumaDp struct {
		Version string `json:"version"`
	} `json:"kumaDp"`
	Envoy struct {
		Version string `json:"version"`
	} `json:"envoy"`
}

// Counts counts proxies or resources.
type Counts struct {
	Total             int `json:"total"`
	Online            int `json:"online,omitempty"`
	Offline           int `json:"offline,omitempty"`
	PartiallyDegraded int `json:"partiallyDegraded,omitempty"`
}

// MeshInsight counts the objects of a mesh.
type MeshInsight struct {
	Head
	Dataplanes Counts            `json:"dataplanes"`
	Policies   map[string]Counts `json:"policies"` // by kind, including ExternalService as in Kuma
}

// ServiceInsight is the state of a service.
type ServiceInsight struct {
	Head
	Status     string   `json:"status"` // online, partially_degraded, offline, or not_available
	Dataplanes Counts   `json:"dataplanes"`
	Zones      []string `json:"zones,omitempty"`
}

// Attachment is what policies act on: the proxy as a whole.
type Attachment struct {
	Type    string            `json:"type"`
	Name    string            `json:"name,omitempty"`
	Service string            `json:"service,omitempty"`
	Matched map[string][]Head `json:"matchedPolicies,omitempty"` // by kind
}

// Attached is a proxy that a policy selects.
type Attached struct {
	Kind      string `json:"kind"`
	Dataplane struct {
		Mesh string `json:"mesh"`
		Name string `json:"name"`
	} `json:"dataplane"`
	Attachments []Attachment `json:"attachments"`
}

// ResourceType describes a kind for generic clients.
type ResourceType struct {
	Name                string          `json:"name"`
	Path                string          `json:"path"`
	Scope               string          `json:"scope"` // Global or Mesh
	IncludeInFederation bool            `json:"includeInFederation"`
	ReadOnly            bool            `json:"readOnly"`
	Singular            string          `json:"singularDisplayName"`
	Plural              string          `json:"pluralDisplayName"`
	Policy              *ResourcePolicy `json:"policy,omitempty"`
}

// ResourcePolicy is set for policy kinds.
type ResourcePolicy struct {
	IsTargetRef bool `json:"isTargetRef"`
}
