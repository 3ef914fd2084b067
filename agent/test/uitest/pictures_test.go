package uitest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/uitest/chromium"
	"github.com/nearside-mesh/nearside/agent/test/uitest/mesh"
)

// pictureDir has the pictures of the documents.
const pictureDir = "../../../docs/ui"

// maxPicture bounds a picture in bytes.
const maxPicture = 100_000

// pictures are the pictures of the documents: a view of a mesh with 40 services, in a color scheme.
var pictures = []struct{ name, scheme, hash, until string }{
	{"health", "light", "#/health", `document.querySelector(".verdict .answer") && document.querySelector(".grid")`},
	{"why", "light", "#/why?mesh=default&from=" + mesh.Dataplane(2) + "&to=" + mesh.Service(17),
		`document.querySelector(".verdict .answer")`},
	{"map", "light", "#/map", `document.querySelector("main svg a, main svg circle, main svg rect")`},
	{"proxy", "dark", "#/proxy?mesh=default&name=" + mesh.Dataplane(1) + "&tab=config",
		`document.querySelector("[role=tree]")`},
	{"policy", "dark", "#/policy?type=MeshTrafficPermission&mesh=default&name=within-billing",
		`document.querySelector("main .view h1")`},
}

// TestPictures takes the pictures of the documents if UPDATE_GOLDEN is set. Otherwise it compares
// the list with the files, their sizes, and their use in docs/ui.md.
func TestPictures(t *testing.T) {
	if os.Getenv("UPDATE_GOLDEN") != "" {
		takePictures(t)
	}
	page, err := os.ReadFile(pictureDir + ".md")
	agenttest.Do(t, err)
	for _, v := range pictures {
		info, err := os.Stat(filepath.Join(pictureDir, v.name+".webp"))
		if err != nil {
			t.Errorf("%v: run UPDATE_GOLDEN=1 go test -run TestPictures ./agent/test/uitest", err)
			continue
		}
		if info.Size() > maxPicture {
			t.Errorf("%s has %d bytes, at most %d are allowed", info.Name(), info.Size(), maxPicture)
		}
		if !strings.Contains(string(page), "](ui/"+info.Name()+")") {
			t.Errorf("docs/ui.md does not show %s", info.Name())
		}
	}
	files, err := os.ReadDir(pictureDir)
	agenttest.Do(t, err)
	if len(files) != len(pictures) {
		t.Errorf("docs/ui has %d files, want %d", len(files), len(pictures))
	}
}

func takePictures(t *testing.T) {
	b := chromium.Start(t)
	o := mesh.Options{Services: 40, Proxies: 24, MTLS: true}
	n := newNode(t, func(dir string) error { return mesh.Write(dir, o) })
	n.connect(o)
	p := b.Page(t)
	url := open(t, p, n)
	agenttest.Do(t, os.MkdirAll(pictureDir, 0o755))
	for _, v := range pictures {
		p.Media(v.scheme, true)
		p.Open(url + v.hash)
		p.Until(v.until)
		p.Quiet()
		p.Eval(`document.activeElement?.blur()`, nil)
		agenttest.Do(t, os.WriteFile(filepath.Join(pictureDir, v.name+".webp"), p.Picture("webp"), 0o644))
	}
}
