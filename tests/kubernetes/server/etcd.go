// Runs etcd, the store of the API server that tests/kubernetes starts. Kubernetes' own programs are built as they are (the
// `tool` lines of go.mod); etcd's command is in a module that cannot be built from outside, so this makes the same call.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
