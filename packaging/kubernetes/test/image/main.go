// Image writes a multi-architecture OCI image layout from static binaries, without a daemon, and
// lists the layers. The same binaries produce the same bytes.
//
//	image -out DIR -tag NAME linux/amd64=FOLDER linux/arm64=FOLDER
//
// Each file of a folder becomes a layer with an executable in /, owned by root. With -oci-tar FILE
// the layout is also written as a tar archive for "ctr images import" and "skopeo copy
// oci-archive:".
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const maxImage = 45_000_000 // bytes, compressed

func main() {
	log.SetFlags(0)
	out := flag.String("out", "dist/image", "folder of the image layout")
	tag := flag.String("tag", "ghcr.io/nearside-mesh/nearside:dev", "name of the image")
	archive := flag.String("oci-tar", "", "write the layout as this tar archive too")
	entry := flag.String("entrypoint", "/nearside", "program that runs")
	command := flag.String("command", "run", "its first argument unless a container has others")
	user := flag.String("user", "65532:65532", "user and group that it runs as")
	flag.Parse()
	run := v1.Config{User: *user, Entrypoint: []string{*entry}, Cmd: []string{*command}}
	if err := build(*out, *tag, *archive, run, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func build(out, tag, archive string, run v1.Config, platforms []string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range platforms {
		name, folder, ok := strings.Cut(arg, "=")
		platform, err := v1.ParsePlatform(name)
		if !ok || err != nil {
			return fmt.Errorf("%q: write OS/ARCH=FOLDER", arg)
		}
		img, err := image(folder, run, platform)
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	p, err := layout.Write(out, empty.Index)
	if err != nil {
		return err
	}
	err = p.AppendIndex(index,
		layout.WithAnnotations(map[string]string{"io.containerd.image.name": tag, "org.opencontainers.image.ref.name": tag}))
	if err != nil || archive == "" {
		return err
	}
	return pack(out, archive)
}

func image(folder string, run v1.Config, platform *v1.Platform) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var total int64
	for _, f := range files {
		layer, err := single(filepath.Join(folder, f.Name()))
		if err != nil {
			return nil, err
		}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
			History: v1.History{CreatedBy: "/" + f.Name()}}); err != nil {
			return nil, err
		}
		size, err := layer.Size()
		if err != nil {
			return nil, err
		}
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		info, err := f.Info()
		if err != nil {
			return nil, err
		}
		total += size
		fmt.Printf("%-12s /%-20s %9d bytes, %9d compressed  %s\n", platform, f.Name(), info.Size(), size, digest)
	}
	fmt.Printf("%-12s image                 %29d compressed\n", platform, total)
	if total > maxImage {
		return nil, fmt.Errorf("%d bytes, and %d are allowed", total, maxImage)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Variant = platform.OS, platform.Architecture, platform.Variant
	cfg.Config.User, cfg.Config.Entrypoint, cfg.Config.Cmd = run.User, run.Entrypoint, run.Cmd
	return mutate.ConfigFile(img, cfg)
}

// single returns a layer with one program in / and without timestamps.
func single(path string) (v1.Layer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: filepath.Base(path), Mode: 0o755, Size: int64(len(data)),
		Typeflag: tar.TypeReg}); err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

func pack(dir, archive string) error {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}); err !=
			nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
