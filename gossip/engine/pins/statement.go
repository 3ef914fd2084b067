package pins

import (
	"errors"
	"fmt"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

const domainStatement = "nearside node key statement"

// Statement is the statement of a former key that a name of a cluster belongs to the next key.
func Statement(former sign.Signer, cluster, name string, next sign.ID) ([]byte, error) {
	b, err := sign.Make(former, domainStatement, statement(cluster, name, next))
	if err != nil {
		return nil, fmt.Errorf("sign the statement of the former node key: %w", err)
	}
	return b, nil
}

// CheckStatement verifies a statement, and returns the key that signed it.
func CheckStatement(b []byte, cluster, name string, next sign.ID) (former sign.ID, err error) {
	key, err := sign.Verify(domainStatement, statement(cluster, name, next), b)
	if err != nil {
		return former, err
	}
	if former = sign.Fingerprint(key); former == next {
		return former, errors.New("statement of a former key names the same key")
	}
	return former, nil
}

func statement(cluster, name string, next sign.ID) []byte {
	return append([]byte(cluster+"\x00"+name+"\x00"), next[:]...)
}
