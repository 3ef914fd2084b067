package client

import (
	"context"
	"net/http"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Trust returns the trust of the agent's node.
func (c *Client) Trust(ctx context.Context) (*api.Trust, error) {
	return call[api.Trust](ctx, c, http.MethodGet, "/v1/trust", nil, nil)
}

// TrustRecords returns the records of the pool that a key signed, given by its fingerprint;
// "unsigned" selects those without a signature, and "" all.
func (c *Client) TrustRecords(ctx context.Context, signer string) (*api.TrustRecords, error) {
	return call[api.TrustRecords](ctx, c, http.MethodGet, "/v1/trust/records", query("signer", signer), nil)
}

// AnchorTrust makes a trust file the first one of the agent's node.
func (c *Client) AnchorTrust(ctx context.Context, file []byte) error {
	_, err := ask[struct{}](ctx, c, "/v1/trust/anchor", api.TrustAnchor{File: string(file)})
	return err
}
