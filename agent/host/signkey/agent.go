package signkey

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// agentTime bounds one request to an ssh-agent, which may ask its user for a confirmation.
const agentTime = time.Minute

// held is a key in an ssh-agent.
type held struct {
	public ed25519.PublicKey
	key    *agent.Key
	conn   net.Conn
	mu     sync.Mutex // one request at a time
	agent  agent.Agent
}

// Public implements [sign.Signer].
func (h *held) Public() ed25519.PublicKey { return h.public }

// Sign implements [sign.Signer].
func (h *held) Sign(message []byte) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.conn.SetDeadline(time.Now().Add(agentTime)); err != nil {
		return nil, fmt.Errorf("ssh-agent: %w", err)
	}
	s, err := h.agent.Sign(h.key, message)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the ssh-agent refused to sign with the key %q: %w; unlock it, or confirm its question",
			h.key.Comment, err)
	case s.Format != ssh.KeyAlgoED25519 || len(s.Blob) != ed25519.SignatureSize:
		return nil, fmt.Errorf("the ssh-agent returned a signature of type %q with %d bytes; %s with %d bytes is required",
			s.Format, len(s.Blob), ssh.KeyAlgoED25519, ed25519.SignatureSize)
	}
	return s.Blob, nil
}

// openAgent opens a key of the ssh-agent, given its comment, its fingerprint as ssh-add -l or
// nearside keys list shows it, or "" for the only one.
func openAgent(wanted string, o Options) (*Key, error) {
	socket := ""
	if o.Getenv != nil {
		socket = o.Getenv("SSH_AUTH_SOCK")
	}
	if socket == "" {
		return nil, errors.New("SSH_AUTH_SOCK is not set, so no ssh-agent can be used; start one with: " +
			"eval $(ssh-agent), and add a key with ssh-add")
	}
	conn, err := net.DialTimeout("unix", socket, agentTime)
	if err != nil {
		return nil, fmt.Errorf("SSH_AUTH_SOCK: no ssh-agent answers at %s: %w", socket, err)
	}
	h, err := pick(agent.NewClient(conn), conn, wanted)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &Key{Signer: h, Name: h.key.Comment, shut: func() { conn.Close() }}, nil
}

// pick finds the wanted key.
func pick(a agent.Agent, conn net.Conn, wanted string) (*held, error) {
	if err := conn.SetDeadline(time.Now().Add(agentTime)); err != nil {
		return nil, fmt.Errorf("ssh-agent: %w", err)
	}
	list, err := a.List()
	if err != nil {
		return nil, fmt.Errorf("ssh-agent: %w", err)
	}
	var found []*held
	var names []string
	for _, k := range list {
		public := publicOf(k)
		if public == nil {
			continue
		}
		id := ssh.FingerprintSHA256(k)
		names = append(names, fmt.Sprintf("%s (%s)", k.Comment, id))
		if wanted == "" || wanted == k.Comment || wanted == id || wanted == sign.Fingerprint(public).String() {
			found = append(found, &held{public: public, key: k, conn: conn, agent: a})
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(names) == 0:
		return nil, errors.New("the ssh-agent has no ed25519 key; add one with ssh-add")
	case len(found) == 0:
		return nil, fmt.Errorf("the ssh-agent has no ed25519 key %q; it has: %s", wanted, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("the ssh-agent has %d ed25519 keys that match %q; give ssh-agent:FINGERPRINT of one of: %s",
		len(found), wanted, strings.Join(names, ", "))
}

// publicOf returns an ed25519 key, or nil for a key of another type.
func publicOf(k *agent.Key) ed25519.PublicKey {
	if k.Format != ssh.KeyAlgoED25519 {
		return nil
	}
	parsed, err := ssh.ParsePublicKey(k.Blob)
	if err != nil {
		return nil
	}
	c, ok := parsed.(ssh.CryptoPublicKey)
	if !ok {
		return nil
	}
	public, _ := c.CryptoPublicKey().(ed25519.PublicKey)
	return public
}
