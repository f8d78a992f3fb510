//go:build tools

// Package versitygw pins the S3 server that the tests of the object store run against.
package versitygw

import _ "github.com/versity/versitygw/cmd/versitygw"
