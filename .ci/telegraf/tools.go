//go:build tools

// Package telegraf pins the agent whose remote write is tested.
package telegraf

import _ "github.com/influxdata/telegraf/cmd/telegraf"
