package bootstrap_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// TestEnvoyTakesBootstrap checks that a real Envoy, if available, accepts rendered bootstraps.
func TestEnvoyTakesBootstrap(t *testing.T) {
	envoy := envoytest.Find(t)
	cert, key := selfSigned(t)
	for name, edit := range map[string]func(*bootstrap.Options){
		"socket": func(*bootstrap.Options) {},
		"token":  func(o *bootstrap.Options) { o.Token = "aB-_9.b.c" },
		"IPv6":   tcp("[::1]:15443", cert, "", ""),
		"mTLS":   tcp("localhost:15443", cert, cert, key),
		"plain":  tcp("192.0.2.1:15443", "", "", ""),
		"limits": func(o *bootstrap.Options) {
			o.Zone, o.MaxConnections, o.MaxHeapBytes, o.StatsTags = "east", bootstrap.DefaultMaxConnections, 1<<30, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := bootstrap.Options{Mesh: "m", Name: "n", XDSSocket: "/run/nearside/xds.sock",
				AdminSocket: t.TempDir() + "/a"}
			edit(&o)
			out, err := bootstrap.Render(o)
			if err != nil {
				t.Fatal(err)
			}
			file := t.TempDir() + "/envoy.yaml"
			if err := os.WriteFile(file, out, 0o600); err != nil {
				t.Fatal(err)
			}
			validateWithEnvoy(t, envoy, file)
		})
	}
}

// selfSigned writes a self-signed certificate and its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = dir+"/cert.pem", dir+"/key.pem"
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func validateWithEnvoy(t *testing.T, envoy, file string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-c", file).CombinedOutput(); err != nil {
		t.Errorf("envoy --mode validate: %v\n%s", err, out)
	}
}

// TestBootstrapLimits checks the timeouts and limits in a rendered bootstrap.
func TestBootstrapLimits(t *testing.T) {
	o := bootstrap.Options{Mesh: "m", Name: "n", XDSSocket: "/x", Zone: "east", MaxConnections: 7,
		MaxHeapBytes: 1 << 30, StatsTags: true}
	out, err := bootstrap.Render(o)
	if err != nil {
		t.Fatal(err)
	}
	b := readBootstrap(t, out)
	if got := b.GetNode().GetLocality().GetZone(); got != "east" {
		t.Errorf("zone %q", got)
	}
	for _, s := range []*corev3.ConfigSource{
		b.GetDynamicResources().GetCdsConfig(), b.GetDynamicResources().GetLdsConfig(),
	} {
		if s.GetInitialFetchTimeout() == nil || s.GetInitialFetchTimeout().AsDuration() != 0 {
			t.Errorf("it does not wait for its config: %v", s)
		}
	}
	back := b.GetDynamicResources().GetAdsConfig().GetGrpcServices()[0].GetEnvoyGrpc().GetRetryPolicy().GetRetryBackOff()
	if back.GetBaseInterval().AsDuration() != 250*time.Millisecond || back.GetMaxInterval().AsDuration() != 2*time.Second {
		t.Errorf("back-off %v", back)
	}
	if m := b.GetOverloadManager(); len(m.GetResourceMonitors()) != 2 || len(m.GetActions()) != 2 {
		t.Errorf("overload manager %v", m)
	}
	if n := len(b.GetStatsConfig().GetStatsTags()); n != 6 {
		t.Errorf("%d tags", n)
	}
	o.MaxConnections, o.MaxHeapBytes, o.StatsTags = 0, 0, false
	if out, err = bootstrap.Render(o); err != nil {
		t.Fatal(err)
	}
	if b = readBootstrap(t, out); b.GetOverloadManager() != nil || b.GetStatsConfig() != nil {
		t.Errorf("limits that nobody asked for:\n%s", out)
	}
	o.MaxConnections = 1 << 63
	if _, err = bootstrap.Render(o); err == nil ||
		!strings.Contains(err.Error(), "max connections 9223372036854775808") {
		t.Errorf("got %v", err)
	}
}
