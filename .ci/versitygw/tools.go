//go:build tools

// Package versitygw pins the version of the S3 server for tests of the object store.
package versitygw

import _ "github.com/versity/versitygw/cmd/versitygw"
