module github.com/nearside-mesh/nearside/packaging/kubernetes/prepare

go 1.26.0
