package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/clip"
	"github.com/nearside-mesh/nearside/agent/files"
	"github.com/nearside-mesh/nearside/agent/mesh"
)

// The file of virtual addresses has a line for each service, its fields separated by a space, between a head and a last
// line with the number of services, by which half a file is known:
//
//	nearside-vips 1
//	"default" "MeshService" "redis" 241.4.7.1 fd00:fd01::9ab:1 -
//	"default" "" "web" 240.1.2.3 - 1790000000000
//	end 2
//
// They are mesh, kind, name, both addresses, and the time in Unix milliseconds when those of a service that is gone
// become free.
const (
	vipHead = "nearside-vips 1"
	vipEnd  = "end "
	noValue = "-"
)

// maxVIPFile bounds the file, in bytes: a million services.
const maxVIPFile = 128 << 20

func encodeVIPs(all map[string]*mesh.VIPs) []byte {
	b := append([]byte(vipHead), '\n')
	n := 0
	address := func(a netip.Addr) {
		b = append(b, ' ')
		if !a.IsValid() {
			b = append(b, noValue...)
			return
		}
		b = a.AppendTo(b)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, e := range all[name].Entries() {
			b = strconv.AppendQuote(b, name)
			b = strconv.AppendQuote(append(b, ' '), e.Kind)
			b = strconv.AppendQuote(append(b, ' '), e.Name)
			address(e.V4)
			address(e.V6)
			b = append(b, ' ')
			if e.Gone.IsZero() {
				b = append(b, noValue...)
			} else {
				b = strconv.AppendInt(b, e.Gone.UnixMilli(), 10)
			}
			b = append(b, '\n')
			n++
		}
	}
	return append(strconv.AppendInt(append(b, vipEnd...), int64(n), 10), '\n')
}

func readVIPs(path string) (map[string]*mesh.VIPs, error) {
	f, err := files.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxVIPFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxVIPFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxVIPFile)
	}
	return decodeVIPs(data)
}

// decodeVIPs reads a file. An error names the line.
func decodeVIPs(data []byte) (map[string]*mesh.VIPs, error) {
	lists := map[string][]mesh.VIPEntry{}
	number, n, ended := 0, 0, false
	for line := range bytes.Lines(data) {
		number++
		text, whole := strings.CutSuffix(string(line), "\n")
		var err error
		switch {
		case !whole:
			err = errors.New("it is cut off")
		case number == 1:
			if text != vipHead {
				err = fmt.Errorf("the file begins with %q, not with %q", clip.Value(text), vipHead)
			}
		case ended:
			err = errors.New("something stands behind the end")
		case strings.HasPrefix(text, vipEnd):
			if ended = true; text != vipEnd+strconv.Itoa(n) {
				err = fmt.Errorf("the file has %d services, and %q", n, clip.Value(text))
			}
		default:
			var name string
			var e mesh.VIPEntry
			if name, e, err = decodeVIP(text); err == nil {
				lists[name] = append(lists[name], e)
				n++
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if !ended {
		return nil, fmt.Errorf("line %d: the end is missing", number)
	}
	out := make(map[string]*mesh.VIPs, len(lists))
	for name, list := range lists {
		out[name] = mesh.NewVIPs(list)
	}
	return out, nil
}

func decodeVIP(text string) (name string, e mesh.VIPEntry, err error) {
	for _, to := range []*string{&name, &e.Kind, &e.Name} {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", e, errors.New("a name in quotes is missing")
		}
		if *to, err = strconv.Unquote(quoted); err != nil {
			return "", e, err
		}
		text = strings.TrimPrefix(text[len(quoted):], " ")
	}
	rest := strings.Split(text, " ")
	if len(rest) != 3 {
		return "", e, fmt.Errorf("%d values stand behind the names; want 3", len(rest))
	}
	for i, to := range []*netip.Addr{&e.V4, &e.V6} {
		if rest[i] == noValue {
			continue
		}
		if *to, err = netip.ParseAddr(rest[i]); err != nil {
			return "", e, err
		}
	}
	if rest[2] != noValue {
		ms, err := strconv.ParseInt(rest[2], 10, 64)
		if err != nil {
			return "", e, fmt.Errorf("%q is not a time in milliseconds", clip.Value(rest[2]))
		}
		e.Gone = time.UnixMilli(ms)
	}
	return name, e, nil
}
