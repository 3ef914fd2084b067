package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Audiences: what a token is for.
const (
	AudienceXDS = "nearside-xds" // Envoys and other xDS clients
	AudienceAPI = "nearside-api" // clients of the HTTP API
)

// MaxValidity is the longest time that a token can be valid.
const MaxValidity = 10 * 365 * 24 * time.Hour

// Bounds of claims, in bytes and items.
const (
	maxMesh     = 63
	maxName     = 253
	maxSubject  = 317
	maxID       = 64
	maxServices = 64
)

// Claims are what a token says.
type Claims struct {
	ID      string // jti; Create makes one of 128 random bits
	Subject string // sub: who has the token, for logs and roles
	// Mesh and Name say which xDS node ids the token may take: MESH.NAME, where Name is a glob on
	// names of Dataplanes such as "web-*". The proxy of a ZoneEgress or ZoneIngress has no mesh; its
	// Name is "egress.GLOB" or "ingress.GLOB". Both are empty in a token for the API, and Name is
	// never empty in one for xDS. See [Claims.NodeIDs].
	Mesh, Name string
	Services   []string // globs on the kuma.io/service values that a Dataplane in the node metadata may claim; empty: none
	Audience   string   // AudienceXDS or AudienceAPI
	KeyID      string   // kid of the key that signed it
	// Seconds are the unit of Issued, NotBefore and Expires.
	Issued, NotBefore, Expires time.Time
}

// NodeIDs is a glob on the xDS node ids that the token may take, such as "default.web-*"; "" for
// none.
func (c *Claims) NodeIDs() string {
	if c.Audience != AudienceXDS || c.Name == "" {
		return ""
	}
	return c.Mesh + "." + c.Name
}

// Prefixes of Claims.Name in tokens for the proxies of ZoneEgresses and ZoneIngresses.
const (
	EgressName  = "egress."
	IngressName = "ingress."
)

// Check reports what is wrong with the claims that a user gives, all at once: each error names the
// claim, its value and what is allowed. Create refuses what Check does.
func (c *Claims) Check() error {
	var faults []error
	fault := func(claim, value, allowed string) {
		faults = append(faults, fmt.Errorf("%s %s: %s", claim, quote(value), allowed))
	}
	if c.Subject == "" || len(c.Subject) > maxSubject || !only(c.Subject, "-._@:/+*", true) {
		fault("subject", c.Subject, fmt.Sprintf("want 1 to %d letters, digits and characters of -._@:/+*", maxSubject))
	}
	switch c.Audience {
	case AudienceAPI:
		if c.Mesh != "" || c.Name != "" || len(c.Services) > 0 {
			faults = append(faults, errors.New("a token for the API has no mesh, name or services: leave them out"))
		}
	case AudienceXDS:
		if c.Mesh != "" && (len(c.Mesh) > maxMesh || !only(c.Mesh, "-_", false) || !between(c.Mesh)) {
			fault("mesh", c.Mesh, fmt.Sprintf("want the name of one mesh: at most %d lower-case letters, digits, '-' and '_', "+
				"with a letter or digit at both ends", maxMesh))
		}
		if c.Name == "" || len(c.Name) > maxName || !only(c.Name, "-_.*", false) {
			fault("name", c.Name, fmt.Sprintf("want a glob on names of Dataplanes, such as \"web-*\": 1 to %d lower-case "+
				"letters, digits, '-', '_', '.' and '*'", maxName))
		} else if c.Mesh == "" && !zoneProxy(c.Name) {
			faults = append(faults, errors.New("mesh: required for the proxies of Dataplanes"))
		}
		if len(c.Services) > maxServices {
			faults = append(faults, fmt.Errorf("services: %d globs, at most %d are allowed", len(c.Services), maxServices))
		}
		for _, s := range c.Services {
			if s == "" || len(s) > maxName || !only(s, "-_.:/*", true) {
				fault("service", s,
					fmt.Sprintf("want a glob on values of kuma.io/service: 1 to %d letters, digits, '-', '_', '.', ':', '/' and '*'",
						maxName))
			}
		}
	default:
		fault("audience", c.Audience, fmt.Sprintf("want %q or %q", AudienceXDS, AudienceAPI))
	}
	return errors.Join(faults...)
}

// zoneProxy reports whether a name is that of proxies that have no mesh.
func zoneProxy(name string) bool {
	for _, prefix := range [...]string{EgressName, IngressName} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" {
			return true
		}
	}
	return false
}

// only reports whether s has lower-case letters, digits and the characters of extra alone, and
// capitals where allowed.
func only(s, extra string, capitals bool) bool {
	for i := range len(s) {
		c := s[i]
		if !lowerOrDigit(c) && !(capitals && c >= 'A' && c <= 'Z') && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return true
}

// between reports whether s begins and ends with a lower-case letter or a digit.
func between(s string) bool { return lowerOrDigit(s[0]) && lowerOrDigit(s[len(s)-1]) }

func lowerOrDigit(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// payload is the body of a token. What anybody may put into one costs little to decode before its
// signature is verified: lists stay bytes until then.
type payload struct {
	jwt.RegisteredClaims
	Audience audience        `json:"aud"` // in place of a list
	Mesh     string          `json:"mesh,omitempty"`
	Name     string          `json:"name,omitempty"`
	Services json.RawMessage `json:"services,omitempty"`
}

// audience is the one audience of a token. A list (RFC 7519, section 4.1.3) is in no token of this
// package.
type audience string

func (c *Claims) payload() (*payload, error) {
	p := &payload{
		RegisteredClaims: jwt.RegisteredClaims{
			ID: c.ID, Subject: c.Subject,
			IssuedAt: jwt.NewNumericDate(c.Issued), NotBefore: jwt.NewNumericDate(c.NotBefore),
			ExpiresAt: jwt.NewNumericDate(c.Expires),
		},
		Audience: audience(c.Audience), Mesh: c.Mesh, Name: c.Name,
	}
	if len(c.Services) == 0 {
		return p, nil
	}
	var err error
	p.Services, err = json.Marshal(c.Services)
	return p, err
}

// claims returns what the token says.
func (p *payload) claims(kid string) (Claims, error) {
	c := Claims{
		ID: p.ID, Subject: p.Subject, Mesh: p.Mesh, Name: p.Name, Audience: string(p.Audience), KeyID: kid,
		Issued: at(p.IssuedAt), NotBefore: at(p.NotBefore), Expires: at(p.ExpiresAt),
	}
	if len(p.Services) == 0 {
		return c, nil
	}
	return c, json.Unmarshal(p.Services, &c.Services)
}

// at is the time of a claim in UTC; zero where it is missing, or in a year that no text form of
// times has (RFC 3339).
func at(d *jwt.NumericDate) time.Time {
	if d == nil || d.UTC().Year() < 0 || d.UTC().Year() > 9999 {
		return time.Time{}
	}
	return d.UTC()
}
