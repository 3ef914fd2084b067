package config_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestConfigPublished checks the options of published directories, in the mapping of resources and
// in the list that may replace it.
func TestConfigPublished(t *testing.T) {
	long := "/" + strings.Repeat("d", 253)
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{name: "both forms of ids", file: "resources:\n- {path: /srv/mesh, publish: true}\n" +
			"- {path: /srv/team, publish: true, id: team, role: observability}\n- {path: /etc/own}\n"},
		{name: "the list below dir", file: "resources: {dir: [{path: /srv/mesh, publish: true}]}\n"},
		{name: "an id without publish", file: "resources:\n- {path: /a, id: x}\n", want: []string{
			`DIR/agent.yaml:1: resources.dir[0].id: "x" has no effect without publish: true; set it, or remove the id`}},
		{name: "one id twice", file: "resources:\n- {path: /a, publish: true, id: x}\n- {path: /b, publish: true, id: x}\n",
			want: []string{`DIR/agent.yaml:1: resources.dir[1].id: "x" is also the id of item [0]; use different ids`}},
		{name: "an invalid id", file: "resources:\n- {path: /a, publish: true, id: /x}\n",
			want: []string{`DIR/agent.yaml:2: resources.dir[0].id: "/x" is not a valid name`}},
		{name: "a path that is too long for an id", file: "resources:\n- {path: " + long + ", publish: true}\n",
			want: []string{"resources.dir[0].id: is required: the path has 254 bytes, and an id may have at most 253"}},
		{name: "an empty list", file: "resources: []\n", want: []string{"resources.dir: is empty; add at least one item"}},
		{name: "a wrong type", file: "resources:\n- {path: /a, publish: 7}\n",
			want: []string{"DIR/agent.yaml:2: resources.dir[0].publish"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, got := agenttest.LoadConfig(t, c.file, nil, nil)
			if len(got) != len(c.want) {
				t.Fatalf("%d faults, want %d:\n%s", len(got), len(c.want), strings.Join(got, "\n"))
			}
			for i := range got {
				if !strings.Contains(got[i], c.want[i]) {
					t.Errorf("fault %d\n got %s\nwant … %s", i, got[i], c.want[i])
				}
			}
		})
	}
	cfg, origins, _ := agenttest.LoadConfig(t, "resources:\n- {path: /srv/mesh/, publish: true}\n"+
		"- {path: /b, publish: true, id: team}\n", nil, nil)
	var ids []string
	for _, d := range cfg.Resources.Dir {
		ids = append(ids, d.PublishID())
	}
	if want := []string{"/srv/mesh", "team"}; !reflect.DeepEqual(ids, want) {
		t.Errorf("ids %q, want %q", ids, want)
	}
	if text, err := cfg.YAML(origins); err != nil || !strings.Contains(string(text), "publish: true") {
		t.Errorf("shown config (%v):\n%s", err, text)
	}
}

// TestPublishWarning checks the warning about a published directory without a pool.
func TestPublishWarning(t *testing.T) {
	for set, want := range map[string]string{"": "resources.dir[0].publish has no effect without gossip.bind",
		"gossip.bind=:7946 gossip.insecure=true": "gossip.insecure is true"} {
		var got []string
		_, _, faults := config.Load(config.LoadOptions{Dir: t.TempDir(), Hostname: "h", UID: func() int { return 0 },
			Warn: func(s string) { got = append(got, s) },
			Set:  append(strings.Fields(set), "resources.dir=[{path: /a, publish: true}]")})
		if faults != nil || len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%q: warnings %q and faults %v, want %q", set, got, faults, want)
		}
	}
}

// TestSchemaOfLists checks that the schema allows the list of directories in both places.
func TestSchemaOfLists(t *testing.T) {
	var schema struct {
		Properties struct {
			Resources struct {
				Type       []string
				Items      any
				Properties struct{ Dir struct{ Items any } }
			}
		}
	}
	if err := json.Unmarshal(config.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	r := schema.Properties.Resources
	if !reflect.DeepEqual(r.Type, []string{"object", "array", "null"}) || r.Items == nil ||
		!reflect.DeepEqual(r.Items, r.Properties.Dir.Items) {
		t.Errorf("schema of resources: %+v", r)
	}
}
