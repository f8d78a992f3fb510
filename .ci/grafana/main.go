// Program grafana queries servers by the code of Grafana's Prometheus data source and of Prometheus'
// client for Go, and prints the results.
//
// It reads a list of addresses and questions as JSON, and prints a list for each question: the
// results of all addresses in their order. Order and numbers of a result are not changed.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// task is the input: each question is sent to each address.
type task struct {
	Addresses []string   `json:"addresses"`
	Questions []question `json:"questions"`
}

// question is a request by one of the two clients, which reads only its own fields.
type question struct {
	// Ask is health, query or resource for Grafana, or call for Prometheus' client.
	Ask string `json:"ask"`

	// Settings are those of the data source, as in Grafana.
	Settings json.RawMessage `json:"settings"`
	// Model is a panel's query, as in a dashboard.
	Model json.RawMessage `json:"model"`
	// MaxDataPoints and IntervalMs are sent by Grafana's page in addition to the model.
	MaxDataPoints int64 `json:"maxDataPoints"`
	IntervalMs    int64 `json:"intervalMs"`
	// Method, Path, Query and Body are the request of a resource.
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query"`
	Body   string `json:"body"`

	// Call is the name of a method of Prometheus' client; the others are its arguments.
	Call    string   `json:"call"`
	Expr    string   `json:"expr"`
	Matches []string `json:"matches"`
	Label   string   `json:"label"`
	Metric  string   `json:"metric"`
	Limit   uint64   `json:"limit"`
	StepMs  int64    `json:"stepMs"`

	// From and To are the time range in milliseconds since the epoch.
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var all task
	input := json.NewDecoder(os.Stdin)
	input.DisallowUnknownFields()
	if err := input.Decode(&all); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	grafana := newGrafana()
	answers := make([][]any, len(all.Questions))
	for at, asked := range all.Questions {
		for _, address := range all.Addresses {
			answer, err := ask(context.Background(), grafana, address, asked)
			if err != nil {
				return fmt.Errorf("question %d of %s: %w", at, address, err)
			}
			answers[at] = append(answers[at], answer)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

// ask returns the result of a client, including errors of the server. An error of this function is an
// invalid question.
func ask(ctx context.Context, grafana *grafana, address string, asked question) (any, error) {
	switch asked.Ask {
	case "health":
		return grafana.health(ctx, address, asked)
	case "query":
		return grafana.query(ctx, address, asked)
	case "resource":
		return grafana.resource(ctx, address, asked)
	case "call":
		return call(ctx, address, asked)
	}
	return nil, fmt.Errorf("unknown question %q", asked.Ask)
}
