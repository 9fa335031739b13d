// Driver of two Go clients: `go_transactions franz|sarama bootstrap read written`. It writes three transactions to
// one topic, each with an offset of a group for the other: the first and the third are committed, the second is
// aborted. Then a second producer fences the first. Prints one line for each step, and what is committed.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

const wait = 120 * time.Second

// A busy machine may hold up a transaction for longer than the minute that is the default.
const patience = 600 * time.Second

type step struct {
	value    string
	offset   int64
	isCommit bool
}

var steps = []step{{"first", 5, true}, {"no", 6, false}, {"second", 7, true}}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// onceEnded tries again while a predecessor's transaction is being aborted: Kafka's brokers answer with
// CONCURRENT_TRANSACTIONS until then, and neither client asks again by itself.
func onceEnded(concurrent error, try func() error) {
	for deadline := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		if err := try(); !errors.Is(err, concurrent) || time.Now().After(deadline) {
			must(err)
			return
		}
	}
}

func refused(err error) string {
	if err == nil {
		return "accepted"
	}
	return "refused"
}

func main() {
	run := map[string]func(string, string, string){"franz": franz, "sarama": withSarama}[os.Args[1]]
	run(os.Args[2], os.Args[3], os.Args[4])
}
