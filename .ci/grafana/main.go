// Program grafana asks servers what Grafana's data source of Prometheus and Prometheus' client for
// Go ask, by the code of both, and prints what that code makes of the answers.
//
// It reads a list of addresses and questions as JSON, and prints a list for each question: an
// answer of each address, in their order. Neither order nor numbers of an answer are touched.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// task is what is read: each question is asked of each address.
type task struct {
	Addresses []string   `json:"addresses"`
	Questions []question `json:"questions"`
}

// question is asked by one of the two clients, which reads those of the fields that concern it.
type question struct {
	// Ask is health, query or resource, which are Grafana's, or call, which is of Prometheus' client.
	Ask string `json:"ask"`

	// Settings are the data source's, as Grafana keeps them.
	Settings json.RawMessage `json:"settings"`
	// Model is a panel's query, as a dashboard holds it.
	Model json.RawMessage `json:"model"`
	// MaxDataPoints and IntervalMs are what Grafana's page sends beside the model.
	MaxDataPoints int64 `json:"maxDataPoints"`
	IntervalMs    int64 `json:"intervalMs"`
	// Method, Path, Query and Body make up the request of a resource.
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

	// From and To are the range of all, in milliseconds since the epoch.
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

// ask returns what a client makes of an answer, errors that a server answers with included. An error
// of this function is a question that cannot be asked.
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
	return nil, fmt.Errorf("there is no %q to ask", asked.Ask)
}
