package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/web"
)

// readyTime bounds the wait for the first configs of an agent.
const readyTime = time.Minute

// exportPage writes the page of a backend as static files.
func (f *flags) exportPage(ctx context.Context, env *command.Env, backend http.Handler,
	scrub func([]byte) []byte) error {
	if err := ready(ctx, backend); err != nil {
		return err
	}
	done, err := web.Export(ctx, web.ExportOptions{Dir: f.export, Backend: backend, Files: f.files.Paths,
		Version: env.Build().Version, Scrub: scrub})
	if err != nil {
		return fmt.Errorf("--export: %w", err)
	}
	if done.Omitted > 0 {
		text.Printf(env.Stderr, "note: %s not in the export, because it would be too large; the page says so\n",
			plural.Form(done.Omitted, "1 answer is", "%d answers are"))
	}
	if ok, err := command.Printed(env, *f.format, done); err != nil {
		return err
	} else if !ok {
		text.Printf(env.Stdout, "wrote %s (%d kB) to %s; to see it: python3 -m http.server --bind 127.0.0.1 --directory %s\n",
			plural.Count(done.Files, "file"), done.Bytes/1000, done.Dir, done.Dir)
	}
	if done.Faults > 0 && len(f.files.Paths) > 0 {
		return command.Exit(command.ExitInvalid, fmt.Errorf("%s; the export shows them, and nearside validate -f prints them",
			plural.Form(done.Faults, "1 file has faults", "%d files have faults")))
	}
	return nil
}

// ready waits for the first configs of an agent.
func ready(ctx context.Context, backend http.Handler) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		status, _, _, err := web.Get(ctx, backend, "", "/readyz")
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("the agent is not ready; see nearside status"), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// sourceDate returns the time that an export of files has: SOURCE_DATE_EPOCH, or that of the newest
// file.
func sourceDate(env *command.Env, paths []string) time.Time {
	if n, err := strconv.ParseInt(env.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		return time.Unix(n, 0).UTC()
	}
	var newest time.Time
	for _, p := range paths {
		_ = filepath.WalkDir(p, func(_ string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // a path that cannot be read has been reported
			}
			if info, err := d.Info(); err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
			return nil
		})
	}
	return newest.UTC().Truncate(time.Second)
}

// scrubber removes from the answers of an agent on files what differs in each run.
type scrubber struct {
	temp  []byte    // directory of the agent
	begun time.Time // times from here on are those of the run
	date  string    // replaces them
}

func newScrubber(temp string, begun, date time.Time) *scrubber {
	return &scrubber{temp: []byte(temp), begun: begun.Add(-time.Second), date: date.Format(time.RFC3339)}
}

// unequal are members whose values differ in each run, with the value that replaces them.
var unequal = map[string]any{"instance": "export", "instanceId": "export", "pid": 0, "seconds": 0, "inUse": 0,
	"resident": 0, "limit": 0}

// clean returns an answer without what differs. An answer that is not JSON stays as it is.
func (s *scrubber) clean(answer []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(bytes.ReplaceAll(answer, s.temp, []byte("/nearside-ui"))))
	d.UseNumber()
	var doc any
	if d.Decode(&doc) != nil {
		return answer
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s.value(doc)) != nil {
		return answer
	}
	return b.Bytes()
}

func (s *scrubber) value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v["name"] == "memory" && v["reason"] != nil {
			v["reason"] = "not measured"
		}
		delete(v, "auditChain") // of the requests of this run
		for name, x := range v {
			if fixed, ok := unequal[name]; ok && x != nil {
				if _, object := x.(map[string]any); !object {
					v[name] = fixed
					continue
				}
			}
			v[name] = s.value(x)
		}
	case []any:
		for i := range v {
			v[i] = s.value(v[i])
		}
	case string:
		if t, err := time.Parse(time.RFC3339, v); err == nil && !t.Before(s.begun) && t.Before(time.Now().Add(time.Second)) {
			return s.date
		}
		// CAs of the run, in PEM or base64 of it
		if strings.HasPrefix(v, "-----BEGIN CERTIFICATE") || strings.HasPrefix(v, "LS0tLS1CRUdJTiBDRVJUSUZJQ0FUR") {
			return "[certificate]"
		}
	}
	return v
}
