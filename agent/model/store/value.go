package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// A value on disk consists of the layout (1 byte), a CRC-32C over the bucket key and all that
// follows (4 bytes, big endian), the length of the header (uvarint), the header (JSON), and the
// encoded resource (to the end; empty for a deletion).
const valueLayout = 1

// valueHead is the length of layout and checksum.
const valueHead = 1 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header holds the fields of a value besides the resource. Unknown fields are ignored, so that
// fields can be added without a new format.
type header struct {
	Revision uint64    `json:"revision"`
	Created  time.Time `json:"created"`
	Modified time.Time `json:"modified"`
	Source   Source    `json:"source"`
	Author   string    `json:"author,omitempty"`
	Signer   string    `json:"signer,omitempty"`
	Deleted  bool      `json:"deleted,omitempty"`
}

// wrap returns the value for a bucket key.
func wrap(key []byte, h header, body []byte) ([]byte, error) {
	head, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("header of a value: %w", err)
	}
	v := make([]byte, valueHead, valueHead+binary.MaxVarintLen64+len(head)+len(body))
	v[0] = valueLayout
	v = binary.AppendUvarint(v, uint64(len(head)))
	v = append(v, head...)
	v = append(v, body...)
	binary.BigEndian.PutUint32(v[1:], checksum(key, v[valueHead:]))
	return v, nil
}

// verify checks layout and checksum, and returns the rest.
func verify(key, value []byte) ([]byte, error) {
	if len(value) < valueHead {
		return nil, fmt.Errorf("the value has %d bytes, at least %d are required", len(value), valueHead)
	}
	if value[0] != valueLayout {
		return nil, fmt.Errorf("the value has layout %d, only %d is supported", value[0], valueLayout)
	}
	rest := value[valueHead:]
	if sum := binary.BigEndian.Uint32(value[1:]); sum != checksum(key, rest) {
		return nil, fmt.Errorf("the checksum is %08x, but %08x was stored", checksum(key, rest), sum)
	}
	return rest, nil
}

// unwrap verifies a value and splits it. The body shares the memory of value.
func unwrap(key, value []byte) (h header, body []byte, err error) {
	rest, err := verify(key, value)
	if err != nil {
		return h, nil, err
	}
	if h, body, err = splitHeader(rest); err != nil {
		return h, nil, err
	}
	if h.Deleted != (len(body) == 0) {
		return h, nil, fmt.Errorf("deleted is %t, but the resource has %d bytes", h.Deleted, len(body))
	}
	return h, body, nil
}

// splitHeader decodes the header of a verified value, and returns the rest.
func splitHeader(rest []byte) (h header, body []byte, err error) {
	n, used := binary.Uvarint(rest)
	if used <= 0 || n > uint64(len(rest)-used) {
		return h, nil, errors.New("the header is longer than the value")
	}
	rest = rest[used:]
	if err := json.Unmarshal(rest[:n], &h); err != nil {
		return h, nil, fmt.Errorf("header: %w", err)
	}
	return h, rest[n:], nil
}

func checksum(key, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, rest)
}

// recordKey returns kind, mesh, and name, each terminated by NUL, which none of them contains.
func recordKey(k resource.Key) []byte {
	b := make([]byte, 0, len(k.Kind)+len(k.Mesh)+len(k.Name)+3+8)
	for _, s := range []string{k.Kind, k.Mesh, k.Name} {
		b = append(append(b, s...), 0)
	}
	return b
}

// historyKey returns the record key and the revision, so that a resource's revisions are adjacent
// and in order.
func historyKey(k resource.Key, revision uint64) []byte {
	return binary.BigEndian.AppendUint64(recordKey(k), revision)
}

func parseRecordKey(b []byte) (resource.Key, error) {
	parts := bytes.Split(b, []byte{0})
	if len(parts) != 4 || len(parts[0]) == 0 || len(parts[2]) == 0 || len(parts[3]) != 0 {
		return resource.Key{}, fmt.Errorf("%q is not the key of a record", b)
	}
	return resource.Key{Kind: string(parts[0]), Mesh: string(parts[1]), Name: string(parts[2])}, nil
}

func parseHistoryKey(b []byte) (resource.Key, uint64, error) {
	if len(b) < 8 {
		return resource.Key{}, 0, fmt.Errorf("%q is not the key of a revision", b)
	}
	k, err := parseRecordKey(b[:len(b)-8])
	if err != nil {
		return resource.Key{}, 0, err
	}
	return k, binary.BigEndian.Uint64(b[len(b)-8:]), nil
}

// decodeEntry decodes a value of either bucket.
func decodeEntry(decode func([]byte) (*resource.Resource, error), k resource.Key, key, value []byte) (entry, error) {
	h, body, err := unwrap(key, value)
	if err != nil {
		return entry{}, err
	}
	e := entry{key: k, created: h.Created, Revision: Revision{Revision: h.Revision, Time: h.Modified, Source: h.Source,
		Author: h.Author, Signer: signerOf(h.Signer), Deleted: h.Deleted}}
	if h.Deleted {
		return e, nil
	}
	if e.Resource, err = decode(body); err != nil {
		return entry{}, fmt.Errorf("resource: %w", err)
	}
	if e.Resource.Key != k {
		return entry{}, fmt.Errorf("the value contains %s", e.Resource.Key)
	}
	return e, nil
}

// encodeEntry encodes the value of an entry.
func encodeEntry(e entry, key, body []byte) ([]byte, error) {
	return wrap(key, header{Revision: e.Revision.Revision, Created: e.created, Modified: e.Time, Source: e.Source,
		Author: e.Author, Signer: signerText(e.Signer), Deleted: e.Deleted}, body)
}

// signerText returns the text of a signer in a header, or "".
func signerText(id sign.ID) string {
	if id == (sign.ID{}) {
		return ""
	}
	return id.String()
}

// signerOf returns the signer in a header. A malformed one counts as none.
func signerOf(text string) sign.ID {
	id, err := sign.ParseID(text)
	if err != nil {
		return sign.ID{}
	}
	return id
}
