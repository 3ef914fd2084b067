package reconcile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/files"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// A virtual address is stored by the quoted mesh, kind, and name of its service. The value contains
// both addresses, and the time in Unix milliseconds when the addresses of a deleted service become
// free. "-" stands for none:
//
//	"default" "MeshService" "redis"	241.4.7.1 fd00:fd01::9ab:1 -
//	"default" "" "web"	240.1.2.3 - 1790000000000
const noValue = "-"

func vipService(meshName string, e virtualip.Entry) string {
	b := strconv.AppendQuote(nil, meshName)
	b = strconv.AppendQuote(append(b, ' '), e.Kind)
	return string(strconv.AppendQuote(append(b, ' '), e.Name))
}

func vipAddresses(e virtualip.Entry) string {
	address := func(a netip.Addr) string {
		if !a.IsValid() {
			return noValue
		}
		return a.String()
	}
	gone := noValue
	if !e.Gone.IsZero() {
		gone = strconv.FormatInt(e.Gone.UnixMilli(), 10)
	}
	return address(e.V4) + " " + address(e.V6) + " " + gone
}

// decodeVIP parses a key and a value, joined by a space.
func decodeVIP(text string) (meshName string, e virtualip.Entry, err error) {
	for _, to := range []*string{&meshName, &e.Kind, &e.Name} {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", e, errors.New("a quoted name is missing")
		}
		if *to, err = strconv.Unquote(quoted); err != nil {
			return "", e, err
		}
		text = strings.TrimPrefix(text[len(quoted):], " ")
	}
	values := strings.Split(text, " ")
	if len(values) != 3 {
		return "", e, fmt.Errorf("%d values follow the names; want 3", len(values))
	}
	for i, to := range []*netip.Addr{&e.V4, &e.V6} {
		if values[i] == noValue {
			continue
		}
		if *to, err = netip.ParseAddr(values[i]); err != nil {
			return "", e, err
		}
	}
	if values[2] != noValue {
		ms, err := strconv.ParseInt(values[2], 10, 64)
		if err != nil {
			return "", e, fmt.Errorf("%q is not a time in milliseconds", clip.Value(values[2]))
		}
		e.Gone = time.UnixMilli(ms)
	}
	return meshName, e, nil
}

// OldVIPFile is the file with virtual addresses of an earlier version, below paths.state: one line
// per service between a header and the number of lines.
const (
	OldVIPFile = "vips"
	oldVIPHead = "nearside-vips 1\n"
	maxOldVIPs = 128 << 20 // bytes: a million services
)

// importVIPs stores the addresses of an earlier version's file and removes it. It renames an
// invalid file.
func importVIPs(s *store.Store, path string, log *slog.Logger) map[string]string {
	old, err := readOldVIPs(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		log.Error("the file of virtual addresses is invalid and is renamed; services with colliding addresses may get "+
			"new ones", "file", path, "to", path+".damaged", "error", err)
		err = os.Rename(path, path+".damaged")
	default:
		if err = s.SetAddresses(old); err == nil {
			err = os.Remove(path)
		}
	}
	if err != nil {
		log.Error("cannot remove the file of virtual addresses of an earlier version", "file", path, "error", err)
	}
	return old
}

func readOldVIPs(path string) (map[string]string, error) {
	f, err := files.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxOldVIPs))
	if err != nil {
		return nil, err
	}
	return decodeOldVIPs(string(data))
}

func decodeOldVIPs(text string) (map[string]string, error) {
	body, whole := strings.CutPrefix(text, oldVIPHead)
	lines := strings.SplitAfter(body, "\n")
	n := len(lines) - 2 // the last element is empty
	if !whole || n < 0 || lines[n] != fmt.Sprintf("end %d\n", n) || lines[n+1] != "" {
		return nil, errors.New("its header or its last line is missing")
	}
	out := make(map[string]string, n)
	for i, line := range lines[:n] {
		name, e, err := decodeVIP(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		out[vipService(name, e)] = vipAddresses(e)
	}
	return out, nil
}
