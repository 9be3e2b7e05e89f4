package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/handler"
)

// mailServer stands for the outside. It knows the keys that it has seen, which
// is what makes the tool idempotent.
type mailServer struct {
	out io.Writer

	mu   sync.Mutex     // guards what follows
	sent map[string]int // the mail's number, by wire key
}

// tool declares the mail: its effect class, its limits, and the function that
// produces the effect. What is not said comes from the config.
func (m *mailServer) tool() daemon.Tool {
	return daemon.Tool{
		Config: config.Tool{
			Name:    "mail",
			Effect:  "idempotent", // sent again with the same key after a doubt
			Timeout: 5 * time.Second,
			Retry:   config.Retry{MaxAttempts: 8, Initial: 50 * time.Millisecond, Max: time.Minute},
		},
		Handler: handler.Func(m.send),
	}
}

// send is one attempt. It may be called more than once for the same key, after
// a crash for instance, and must end with its context. What it returns decides
// what follows:
//
//	a result, nil             delivered; the result is kept
//	handler.Reject(err)       refused, nothing was done: dead
//	handler.Again(err, wait)  nothing was done: tried again
//	any other error           it may have happened: sent again with this key
func (m *mailServer) send(_ context.Context, c handler.Call) ([]byte, error) {
	var mail struct{ To string }
	if err := json.Unmarshal(c.Arguments, &mail); err != nil {
		return nil, handler.Reject(err)
	}
	if !strings.Contains(mail.To, "@") {
		return nil, handler.Reject(errors.New("no mail address"))
	}
	if c.Attempt == 1 { // so that there is something to see
		return nil, handler.Again(errors.New("busy"), 100*time.Millisecond)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	number, known := m.sent[c.WireKey]
	if !known {
		number = len(m.sent) + 1
		m.sent[c.WireKey] = number
		if _, err := fmt.Fprintf(m.out, "mail %d to %s\n", number, mail.To); err != nil {
			return nil, err
		}
	}
	return json.Marshal(map[string]int{"mail": number})
}
