package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Drain drains a dataplane of the agent's node, or undoes that.
func (c *Client) Drain(ctx context.Context, mesh, name string, q api.DrainRequest) (*api.Drain, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	return call[api.Drain](ctx, c, http.MethodPost, path("v1", "dataplanes", mesh, name)+"/drain", nil, body)
}

// OwnDrain drains the dataplane of a bootstrap, or undoes that, over the xDS server in the
// bootstrap. The agent takes the caller for the Envoy. Errors have a gRPC status.
func OwnDrain(ctx context.Context, b *bootstrap.File, q api.DrainRequest) (*api.Drain, error) {
	target, creds := "unix:"+b.XDSSocket, insecure.NewCredentials()
	if b.XDSSocket == "" {
		target = "passthrough:///" + b.XDSAddress.Address
		if b.XDSAddress.CA != "" {
			config, err := TLSConfig(&b.XDSAddress)
			if err != nil {
				return nil, err
			}
			creds = credentials.NewTLS(config)
		}
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithDisableRetry(),
		// the held socket accepts connections for an agent that is stopped
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.DefaultConfig}))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if b.Authorization != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", b.Authorization)
	}
	text, err := json.Marshal(api.OwnDrain{NodeID: b.Node.GetId(), DrainRequest: q})
	if err != nil {
		return nil, err
	}
	answer := &wrapperspb.BytesValue{}
	if err := conn.Invoke(ctx, "/"+api.DrainService+"/"+api.DrainMethod, wrapperspb.Bytes(text), answer); err != nil {
		return nil, err
	}
	var out api.Drain
	if err := json.Unmarshal(answer.GetValue(), &out); err != nil {
		return nil, fmt.Errorf("the answer of the agent is invalid: %w", err)
	}
	return &out, nil
}

// TLSConfig returns the TLS config of an Envoy that connects to an address.
func TLSConfig(a *bootstrap.XDSAddress) (*tls.Config, error) {
	pem, err := os.ReadFile(a.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", a.CA)
	}
	if a.Cert != "" {
		pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", a.Cert, a.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
