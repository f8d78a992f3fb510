//go:build tools

// Package thanos pins the version of Thanos for tests of scale-out.
package thanos

import _ "github.com/thanos-io/thanos/cmd/thanos"
