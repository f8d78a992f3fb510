//go:build tools

// Package telegraf pins the version of Telegraf for tests of remote write.
package telegraf

import _ "github.com/influxdata/telegraf/cmd/telegraf"
