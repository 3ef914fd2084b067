package pooltest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// writeLabel is the label with the number of the write.
const writeLabel = "test/write"

// entry is a resource as an agent returns it.
type entry struct {
	text  string // the document
	write string // value of writeLabel
}

// entries returns all resources of an agent by "kind/name". The pools of these tests have only
// these kinds.
func (m *member) entries(ctx context.Context) (map[string]entry, error) {
	out := map[string]entry{}
	for _, kind := range []string{"meshes", "meshtimeouts", "dataplanes"} {
		list, err := m.api.List(ctx, kind, "")
		if err != nil {
			return nil, err
		}
		for _, item := range list {
			doc := documentOf(item.Resource)
			out[kind+"/"+doc.Name] = entry{string(item.Resource), doc.Labels[writeLabel]}
		}
	}
	return out, nil
}

// compare returns a difference between the resources of agents, or "".
func compare(ctx context.Context, all []*member) (first map[string]entry, difference string) {
	for i, m := range all {
		got, err := m.entries(ctx)
		if err != nil {
			return nil, fmt.Sprintf("%s: %v", m.name, err)
		}
		if i == 0 {
			first = got
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(got)) {
			if first[key] != got[key] {
				return first, fmt.Sprintf("%s is on %s: %s\nand on %s: %s", key, m.name, got[key].text, all[0].name,
					first[key].text)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(first)) {
			if _, ok := got[key]; !ok {
				return first, fmt.Sprintf("%s is on %s, but not on %s", key, all[0].name, m.name)
			}
		}
	}
	return first, ""
}

// inSync returns why an agent does not count all members as alive and in sync, or "".
func (m *member) inSync(ctx context.Context, members int) string {
	list, err := m.api.Members(ctx)
	if err != nil {
		return fmt.Sprintf("%s: %v", m.name, err)
	}
	alive := 0
	for _, x := range list.Items {
		if x.State == "alive" {
			alive++
		}
		if x.State == "alive" && !x.InSync {
			return fmt.Sprintf("%s counts %s as not in sync", m.name, x.Name)
		}
	}
	if alive != members {
		return fmt.Sprintf("%s counts %d members as alive", m.name, alive)
	}
	return ""
}

// agree waits until all agents have the same resources and count each other as in sync, and returns
// the resources.
func agree(all []*member) map[string]entry {
	t := all[0].t
	t.Helper()
	ctx := t.Context()
	var got map[string]entry
	var reason string
	t.Cleanup(func() {
		if t.Failed() && reason != "" {
			t.Log(reason)
		}
	})
	await(t, "all agents agree", func() bool {
		if got, reason = compare(ctx, all); reason != "" {
			return false
		}
		for _, m := range all {
			if reason = m.inSync(ctx, len(all)); reason != "" {
				return false
			}
		}
		return true
	})
	return got
}

// checkOf returns the reason of the pool's check.
func (m *member) checkOf() string {
	s, err := m.api.Status(m.t.Context())
	if err != nil {
		return err.Error()
	}
	for _, c := range s.Checks {
		if c.Name == "peers" {
			return c.Reason
		}
	}
	return ""
}

func timeoutText(name, write, idle string) string {
	return fmt.Sprintf("type: MeshTimeout\nmesh: default\nname: %s\nlabels: {%s: %q}\nspec:\n  targetRef: {kind: Mesh}\n"+
		"  to: [{targetRef: {kind: Mesh}, default: {idleTimeout: %s}}]\n", name, writeLabel, write, idle)
}

// meshText is a mesh with the write number 0.
const meshText = "type: Mesh\nname: default\nlabels: {" + writeLabel + ": \"0\"}\n"

// has waits until an agent has a resource with the number of a write, or does not have the resource
// if write is empty.
func (m *member) has(kind, name, write string) {
	m.t.Helper()
	m.await(fmt.Sprintf("%s/%s is of write %q", kind, name, write), func() bool {
		mesh := "default"
		if kind == "meshes" {
			mesh = ""
		}
		item, err := m.api.Get(m.t.Context(), kind, mesh, name)
		if write == "" {
			var refused *api.Error
			return errors.As(err, &refused) && refused.Status == http.StatusNotFound
		}
		return err == nil && strings.Contains(string(item.Resource), fmt.Sprintf("%q:%q", writeLabel, write))
	})
}

// document holds the fields of a resource that the tests read.
type document struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

func documentOf(text []byte) (out document) {
	if err := json.Unmarshal(text, &out); err != nil {
		out.Name = err.Error()
	}
	return out
}

func labelOf(text []byte) string { return documentOf(text).Labels[writeLabel] }
