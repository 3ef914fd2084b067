package command

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/host/signkey"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/source/peers"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// KeyFlag is --sign.
type KeyFlag struct{ value string }

func (f *KeyFlag) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.value, "sign", "", "ed25519 key to sign the change with: a file (OpenSSH or PKCS#8), or "+
		"agent: or ssh-agent:COMMENT for a key of the ssh-agent (default: "+signkey.Env+")")
}

// Open opens the key of --sign or of the environment, or returns nil if there is none.
func (f *KeyFlag) Open(env *Env) (*signkey.Key, error) {
	value := cmp.Or(f.value, env.Getenv(signkey.Env))
	if value == "" {
		return nil, nil
	}
	return signkey.Open(value, signkey.Options{Getenv: env.Getenv, Passphrase: signkey.Terminal})
}

// Signs reports whether a write of resources is signed: there is a key, and the resources do not
// belong to nodes. An explicit --sign of resources of nodes, or of both kinds, is an error.
func (f *KeyFlag) Signs(env *Env, keys []resource.Key) (bool, error) {
	if cmp.Or(f.value, env.Getenv(signkey.Env)) == "" {
		return false, nil
	}
	var owned resource.Key
	shared := false
	for _, k := range keys {
		if peers.Shared(k.Kind) {
			shared = true
		} else {
			owned = k
		}
	}
	if owned.Kind != "" && (shared || f.value != "") {
		return false, Usagef("%s belongs to a node, which signs it itself; apply such resources separately, "+
			"and without --sign", owned)
	}
	return shared, nil
}

// Sign opens the key, and stores changes that it signs; see [client.Client.WriteSignedIf].
func (f *KeyFlag) Sign(ctx context.Context, env *Env, check func() error, puts []engine.Put) (*api.Written, error) {
	k, err := f.Open(env)
	if err != nil {
		return nil, Exit(ExitInvalid, err)
	}
	defer k.Close()
	for i := range puts {
		puts[i].Author = k.Name
	}
	return Long(env, func(c *client.Client) (*api.Written, error) {
		return c.WriteSignedIf(ctx, k, check, puts...)
	})
}

// PutOf returns the change that stores a resource.
func PutOf(r *resource.Resource) (engine.Put, error) {
	body, err := resource.Marshal(r)
	if err != nil {
		return engine.Put{}, fmt.Errorf("encode %s: %w", r.Key, err)
	}
	return engine.Put{Key: engine.Key(r.Key), MediaType: store.MediaType, Body: body}, nil
}
