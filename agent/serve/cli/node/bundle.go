package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// The files of a bundle, each with the command or the API path that produces it.
var (
	bundledCommands = []struct {
		file string
		args []string
	}{
		{"version.json", []string{"version", "-o", "json"}},
		{"status.txt", []string{"status"}},
		{"check.txt", []string{"check"}},
		{"intercept.txt", []string{"intercept", "status"}},
	}
	bundledPaths = []struct{ file, path string }{
		{"status.json", "/v1/status"},
		{"readyz.json", "/readyz?verbose"},
		{"dataplanes.json", "/v1/dataplanes?include=reach"},
		{"services.json", "/v1/services?size=10000"},
		{"members.json", "/v1/members"},
		{"conflicts.json", "/v1/conflicts"},
		{"dns.json", "/v1/dns"},
		{"accesslogs.json", "/v1/accesslogs"},
		{"access.json", "/v1/access"},
		{"config.yaml", "/v1/debug/config"},
		{"log.txt", "/v1/debug/log"},
		{"whoami.json", "/v1/access/whoami"},
		{"metrics.txt", "/metrics"},
		{"heap.pprof", "/v1/debug/pprof?profile=heap"},
		{"goroutine.pprof", "/v1/debug/pprof?profile=goroutine"},
	}
)

// Bounds of a bundle.
const (
	mostConfigs   = 50
	mostHistories = 500
	mostBytes     = 32 << 20 // of configs, and of histories
	journalLines  = "2000"
	journalTime   = 10 * time.Second
)

// bundler writes a bundle.
type bundler struct {
	ctx             context.Context
	client          *client.Client
	out             bytes.Buffer
	zip             *gzip.Writer
	tar             *tar.Writer
	now             time.Time
	missing         int
	failed, omitted bytes.Buffer
	err             error // of writing
}

// add adds a file.
func (b *bundler) add(name string, content []byte) {
	if b.err != nil {
		return
	}
	head := &tar.Header{Name: "nearside/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: b.now}
	if b.err = b.tar.WriteHeader(head); b.err == nil {
		_, b.err = b.tar.Write(content)
	}
}

// fetch adds the answer to a request, and returns it.
func (b *bundler) fetch(name, at string) []byte {
	at, query, _ := strings.Cut(at, "?")
	values, _ := url.ParseQuery(query) // constants
	content, err := b.client.Raw(b.ctx, at, values)
	if err != nil {
		b.missing++
		text.Printf(&b.failed, "%s: %v\n", name, err)
		return nil
	}
	raw := content
	if strings.HasSuffix(name, ".json") {
		var pretty bytes.Buffer
		if json.Indent(&pretty, content, "", "  ") == nil {
			content = pretty.Bytes()
		}
	}
	b.add(name, content)
	return raw
}

// item is an optional file of a bundle.
type item struct{ file, path string }

// some adds items up to a number and a size, and lists the others.
func (b *bundler) some(items []item, most int) {
	size := 0
	for i, x := range items {
		if i >= most || size > mostBytes {
			fmt.Fprintln(&b.omitted, x.file)
			continue
		}
		size += len(b.fetch(x.file, x.path))
	}
}

// bundle collects the files, and returns how many could not be read.
func bundle(ctx context.Context, env *command.Env) (out []byte, missing int, err error) {
	b := &bundler{ctx: ctx, client: env.Client(), now: time.Now()}
	b.zip = gzip.NewWriter(&b.out)
	b.tar = tar.NewWriter(b.zip)
	kinds, err := b.client.Kinds(ctx)
	if err != nil {
		return nil, 0, err // without an agent there is nothing to collect
	}
	for _, x := range bundledCommands {
		var content bytes.Buffer
		env.Invoke(x.args, &content)
		b.add(x.file, content.Bytes())
	}
	for _, x := range bundledPaths {
		content := b.fetch(x.file, x.path)
		if x.file == "dataplanes.json" {
			b.some(configsOf(content), mostConfigs)
		}
	}
	var histories []item
	for _, k := range kinds {
		content := b.fetch("resources/"+k.Plural+".json", "/"+k.Plural+"?meta=true&size=10000")
		histories = append(histories, historiesOf(k.Plural, content)...)
	}
	b.some(histories, mostHistories)
	if env.OnNode("the journal") == nil {
		b.journal()
	}
	if b.omitted.Len() > 0 {
		b.add("omitted.txt", b.omitted.Bytes())
	}
	if b.failed.Len() > 0 {
		b.add("errors.txt", b.failed.Bytes())
	}
	for _, end := range []func() error{b.tar.Close, b.zip.Close} {
		if b.err == nil {
			b.err = end()
		}
	}
	return b.out.Bytes(), b.missing, b.err
}

// configsOf returns the configs of the connected proxies of a list.
func configsOf(list []byte) (out []item) {
	var proxies api.Proxies
	_ = json.Unmarshal(list, &proxies) // of this version's agent
	for i := range proxies.Items {
		p := &proxies.Items[i]
		if len(p.Clients) == 0 {
			continue // nothing was published for it
		}
		at := "/" + path.Join("meshes", p.Mesh, "dataplanes", p.Name)
		if p.Type != "" {
			at = "/" + path.Join("zone"+string(p.Type)+"es", p.Name)
		}
		out = append(out, item{"configs" + at + ".json", at + "/_config"})
	}
	return out
}

// historiesOf returns the histories of the resources of a list.
func historiesOf(plural string, list []byte) (out []item) {
	var items struct {
		Items []struct {
			Resource struct{ Mesh, Name string }
		}
	}
	_ = json.Unmarshal(list, &items)
	for _, x := range items.Items {
		at := path.Join("history", plural, x.Resource.Mesh, x.Resource.Name)
		out = append(out, item{at + ".json", "/v1/" + at})
	}
	return out
}

// journal adds the last lines of the agent's units, if this user may read them.
func (b *bundler) journal() {
	ctx, cancel := context.WithTimeout(b.ctx, journalTime)
	defer cancel()
	lines, err := exec.CommandContext(ctx, "journalctl", "--quiet", "--no-pager", "--output=short-iso",
		"--lines="+journalLines, "--unit=nearside.service", "--unit=nearside-hold.service").Output()
	if err == nil && len(lines) > 0 {
		b.add("journal.txt", []byte(clip.Secrets(string(lines))))
	}
}
